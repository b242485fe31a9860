//! Runs a command in a pod, through the API server.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::AsyncReadExt;

/// The most that is taken of what a command says of its errors.
const ERRORS: u64 = 4096;

/// What a command printed and what it said of its errors, whatever its exit code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs the command in the pod's first container, and takes so many bytes of what it prints.
pub(crate) async fn run_in_pod(
    pods: &Api<Pod>,
    pod: &str,
    command: Vec<String>,
    most: u64,
) -> Result<Said, String> {
    let params = AttachParams::default().stdin(false).max_stdout_buf_size(1 << 20);
    let mut running =
        pods.exec(pod, command, &params).await.map_err(|error| stallproof::sentence(&error))?;
    let (mut printed, mut said) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (running.stdout(), running.stderr());
    // Both at once: a full pipe of one would hold up the other.
    let out = async {
        match stdout {
            Some(out) => out.take(most).read_to_end(&mut printed).await,
            None => Ok(0),
        }
    };
    let err = async {
        match stderr {
            Some(err) => err.take(ERRORS).read_to_end(&mut said).await,
            None => Ok(0),
        }
    };
    let (out, _) = tokio::join!(out, err);
    out.map_err(|error| stallproof::sentence(&error))?;
    Ok(Said { stdout: printed, stderr: String::from_utf8_lossy(&said).trim().to_owned() })
}
