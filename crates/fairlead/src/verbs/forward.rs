use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::{Answer, CHUNK, Change, IN_A_ROW, Route, Server, Socket, Target, Told};
use crate::output::{self, Failure};
use crate::verbs::logs::pod;

/// Connections at once: a browser opens six to a host, a pool of a test some ten; each costs a
/// thread here and a stream in the server.
const AT_ONCE: usize = 64;

/// Reach ports of a pod on this machine's loopback
///
/// Examples:
///   fairlead forward web-0 8080:80 -n shop     http://127.0.0.1:8080 is port 80 of the pod
///   fairlead forward db-0 5432                 the same port on both sides
///   fairlead forward db-0 :5432 9090           any free port; several at once
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Its name
    pod: String,
    /// LOCAL:REMOTE, PORT for both, or :REMOTE for any free local port
    #[arg(required = true, value_name = "LOCAL:REMOTE", value_parser = ports)]
    ports: Vec<Ports>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    /// 0 for any.
    local: u16,
    remote: u16,
}

fn ports(text: &str) -> Result<Ports, String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let local = if local.is_empty() { Some(0) } else { local.parse().ok() };
    let remote = remote.parse().ok().filter(|port| *port > 0);
    local
        .zip(remote)
        .map(|(local, remote)| Ports { local, remote })
        .ok_or_else(|| "expected LOCAL:REMOTE, such as 8080:80".to_owned())
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Change::Yes)?;
    // A pod that is not there is told now, not to the first browser that connects.
    let object = Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod)]);
    server.get::<serde_json::Value>(&object.with("namespace", args.target.namespace()))?;
    let server = Arc::new(server);
    let mut waiting = Vec::new();
    for ports in &args.ports {
        let route =
            Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod), "forward"])
                .with("namespace", args.target.namespace())
                .with("port", ports.remote);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports.local)).map_err(|e| {
            Failure(format!("port {} of 127.0.0.1 cannot be taken: {e}", ports.local))
        })?;
        let address = listener.local_addr()?;
        output::line(&format!("{address} is port {} of {}", ports.remote, args.pod))?;
        let server = server.clone();
        waiting.push(std::thread::spawn(move || listen(&listener, &server, &route)));
    }
    for thread in waiting {
        // They end only when their listener breaks.
        let _ = thread.join();
    }
    Err(Failure("nothing listens any more".to_owned()).into())
}

fn listen(listener: &TcpListener, server: &Arc<Server>, route: &Route) {
    let open = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        let local = match connection {
            Ok(local) => local,
            Err(e) => {
                // Most often out of files: waiting lets some close.
                eprintln!("a connection cannot be taken: {e}");
                std::thread::sleep(std::time::Duration::from_millis(200));
                continue;
            }
        };
        if open.fetch_add(1, Ordering::AcqRel) >= AT_ONCE {
            open.fetch_sub(1, Ordering::AcqRel);
            eprintln!("a connection is refused: {AT_ONCE} are open");
            continue;
        }
        let (server, route, open) = (server.clone(), route.clone(), open.clone());
        std::thread::spawn(move || {
            if let Err(trouble) = carry(local, &server, &route) {
                eprintln!("a connection failed: {trouble}");
            }
            open.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// One connection, until either side ends it. An empty frame says that no more will be written.
fn carry(mut local: TcpStream, server: &Server, route: &Route) -> Answer<()> {
    let mut socket = Socket::open(server, route)?;
    let input = local.try_clone()?;
    let mut writes = true;
    loop {
        let ready = socket.wait(writes.then(|| input.as_fd()), None)?;
        if ready.input {
            let mut frame = vec![0; CHUNK];
            // One that was reset is one that has ended.
            let count = rustix::io::read(&local, &mut frame).unwrap_or(0);
            frame.truncate(count);
            socket.send(frame)?;
            writes = count > 0;
            if ready.hung_up && !writes {
                break;
            }
        }
        for _ in 0..IN_A_ROW {
            match socket.receive()? {
                Told::Nothing => break,
                Told::Closed => return Ok(()),
                Told::Frame(bytes) if bytes.is_empty() => {
                    local.shutdown(std::net::Shutdown::Write)?;
                }
                Told::Frame(bytes) => {
                    if local.write_all(&bytes).is_err() {
                        socket.close();
                        return Ok(());
                    }
                }
            }
        }
    }
    socket.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_for_kubectl() {
        assert_eq!(ports("8080:80"), Ok(Ports { local: 8080, remote: 80 }));
        assert_eq!(ports("80"), Ok(Ports { local: 80, remote: 80 }));
        assert_eq!(ports(":80"), Ok(Ports { local: 0, remote: 80 }));
        for wrong in ["", ":", "80:", "x:80", "80:0", "80:70000", "1:2:3"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
