use super::{Code, Error};
use crate::wire::Pod;

/// The part of `CNI_ARGS` that this plugin reads: the pod, where a Kubernetes runtime names one. The
/// order of the pairs means nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    pub pod: Option<Pod>,
}

impl Args {
    /// An unknown argument is a wish that would not be fulfilled: by convention it is an error unless
    /// `IgnoreUnknown` says otherwise.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut unknown = None;
        let mut ignore_unknown = false;
        let (mut namespace, mut name, mut uid) = (None, None, None);
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                bad(format!("CNI_ARGS: {pair:?} is not a pair such as KEY=VALUE"))
            })?;
            let value = (!value.is_empty()).then(|| value.to_owned());
            match key {
                "IgnoreUnknown" => ignore_unknown = truth(value.as_deref())?,
                "K8S_POD_NAMESPACE" => namespace = value,
                "K8S_POD_NAME" => name = value,
                "K8S_POD_UID" => uid = value,
                // The container has its own variable.
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                _ => unknown = unknown.or(Some(key)),
            }
        }
        if let (Some(key), false) = (unknown, ignore_unknown) {
            return Err(bad(format!("CNI_ARGS: {key} is not an argument of this plugin"))
                .details("leave it out, or add IgnoreUnknown=1"));
        }
        let pod = namespace.zip(name).map(|(namespace, name)| Pod { namespace, name, uid });
        Ok(Self { pod })
    }
}

fn truth(value: Option<&str>) -> Result<bool, Error> {
    match value.unwrap_or_default().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(bad("CNI_ARGS: IgnoreUnknown must be 1, true, 0 or false".to_owned())),
    }
}

fn bad(msg: String) -> Error {
    Error::new(Code::InvalidEnvironment, msg)
}
