//! Reads kubeconfigs entry by entry: an entry that cannot be read is an error of the contexts that use
//! it and of no other.
//!
//! No error quotes a value of a user's entry, nor the text around a mistake, which may be a token.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::proxy;
use crate::credentials::exec::{Exec, Version};
use crate::credentials::{Access, Auth, Bearer, Endpoint, Identity, Impersonate, Redacted};
use crate::local_address::AddressGuard;

/// A larger file is not a certificate or key.
const MOST_FILE: u64 = 1 << 20;
/// The limit of a Secret.
const MOST_SENT: usize = 1 << 20;
/// The extension of a cluster that its exec plugin is given.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// One kubeconfig with its contexts in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kubeconfig {
    pub(crate) contexts: Vec<(String, Entry<Context>)>,
    pub(crate) current: Option<String>,
    clusters: BTreeMap<String, Entry<Cluster>>,
    users: BTreeMap<String, Entry<User>>,
}

/// An entry, or why it cannot be read.
pub(crate) type Entry<T> = Result<T, String>;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Context {
    cluster: String,
    user: Option<String>,
    namespace: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    tls_server_name: Option<String>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Extension {
    name: String,
    extension: Option<Value>,
}

/// `Debug` shows nothing of it, because it is full of secrets.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<ExecEntry>,
    auth_provider: Option<Value>,
    r#as: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("User")
    }
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecEntry {
    api_version: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    install_hint: Option<String>,
    interactive_mode: Option<String>,
    #[serde(default)]
    provide_cluster_info: bool,
}

#[derive(Clone, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

/// What a kubeconfig may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust {
    /// Files and programs of this machine: the kubeconfig is a local file, which only the operator can
    /// write.
    Local,
    /// Nothing but its own content: it was sent to us. Otherwise whoever may import a cluster could
    /// read our files and run our programs.
    Sent,
}

impl Kubeconfig {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // Only `true` and `false` are booleans, because a context may be called `y`, `no` or `on`.
        let options = serde_saphyr::options! { strict_booleans: true };
        let documents = serde_saphyr::from_multiple_with_options(text, options);
        let documents: Vec<Value> = documents.map_err(|error| {
            let at = error.location().map_or(String::new(), |at| {
                format!(" (line {}, column {})", at.line(), at.column())
            });
            format!("is not YAML that can be read{at}")
        })?;
        let (mut whole, mut known) = (Self::default(), BTreeSet::new());
        for document in documents.iter().filter(|document| !document.is_null()) {
            if !document.is_object() {
                return Err("is not a kubeconfig".to_owned());
            }
            whole.add(document, &mut known);
        }
        Ok(whole)
    }

    /// `known` has the names of the contexts: somebody may send a hundred thousand, and each is looked for.
    fn add(&mut self, document: &Value, known: &mut BTreeSet<String>) {
        let current = document["current-context"].as_str().filter(|name| !name.is_empty());
        self.current = self.current.take().or(current.map(ToOwned::to_owned));
        for (name, entry) in entries(document, "clusters", "cluster") {
            self.clusters.entry(name).or_insert(entry);
        }
        for (name, entry) in entries(document, "users", "user") {
            self.users.entry(name).or_insert(entry);
        }
        for (name, entry) in entries(document, "contexts", "context") {
            if known.insert(name.clone()) {
                self.contexts.push((name, entry));
            }
        }
    }
}

/// Returns the named entries of a list. An entry without a name cannot be used.
fn entries<T: DeserializeOwned>(
    document: &Value,
    list: &str,
    kind: &str,
) -> Vec<(String, Entry<T>)> {
    let named = document[list].as_array().into_iter().flatten().filter_map(|item| {
        let name = match &item["name"] {
            Value::String(name) => name.clone(),
            // A name that was written without quotes.
            name @ (Value::Number(_) | Value::Bool(_)) => name.to_string(),
            _ => return None,
        };
        // serde's own message may quote the value.
        let entry = T::deserialize(&item[kind]).map_err(|_| {
            format!("the {kind} {name:?} cannot be read: a field is missing or of the wrong type")
        });
        Some((name, entry))
    });
    named.collect()
}

/// Several kubeconfigs as one, by kubectl's rules: the first file that has a name wins, and a context
/// may use a cluster or user of another file. A relative path is relative to the file that names it.
#[derive(Debug, Default)]
pub(crate) struct Merged<'a> {
    files: Vec<(&'a Path, &'a Kubeconfig)>,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(files: impl IntoIterator<Item = (&'a Path, &'a Kubeconfig)>) -> Self {
        Self { files: files.into_iter().collect() }
    }

    /// Returns each context with its file; of contexts with one name, the first.
    pub(crate) fn contexts(&self) -> Vec<(&'a Path, &'a str)> {
        let mut seen = BTreeSet::new();
        let all = self.files.iter().flat_map(|(path, file)| {
            file.contexts.iter().map(move |(name, _)| (*path, name.as_str()))
        });
        all.filter(|(_, name)| seen.insert(*name)).collect()
    }

    /// Returns how to reach the cluster of a context. Reads the files that it names, if it may.
    pub(crate) fn access(&self, context: &str, trust: Trust) -> Result<Access, String> {
        let mut entries = self.files.iter().flat_map(|(_, file)| &file.contexts);
        let entry = entries.find(|(name, _)| name == context);
        let (_, entry) = entry.ok_or_else(|| format!("there is no context {context:?}"))?;
        let context = entry.as_ref().map_err(Clone::clone)?;

        let (dir, cluster) =
            self.lookup(|file| file.clusters.get(&context.cluster)).ok_or_else(|| {
                format!("its context names the cluster {:?}, which is not there", context.cluster)
            })?;
        let cluster = cluster.as_ref().map_err(Clone::clone)?;
        let endpoint = endpoint(cluster, dir, trust)?;

        let auth = match context.user.as_deref().filter(|user| !user.is_empty()) {
            None => Auth::default(),
            Some(name) => {
                let (dir, user) = self.lookup(|file| file.users.get(name)).ok_or_else(|| {
                    format!("its context names the user {name:?}, which is not there")
                })?;
                auth(user.as_ref().map_err(Clone::clone)?, cluster, dir, trust)?
            }
        };
        let namespace = given(context.namespace.as_ref()).map_or("default", String::as_str);
        Ok(Access { endpoint, auth, namespace: namespace.to_owned(), impersonation: None })
    }

    fn lookup<T>(&self, get: impl Fn(&'a Kubeconfig) -> Option<T>) -> Option<(&'a Path, T)> {
        self.files.iter().find_map(|(path, file)| {
            let dir = path.parent().unwrap_or(Path::new("."));
            get(file).map(|found| (dir, found))
        })
    }
}

fn endpoint(cluster: &Cluster, dir: &Path, trust: Trust) -> Result<Endpoint, String> {
    let server = given(cluster.server.as_ref()).ok_or("its cluster has no server address")?;
    let server = url(server, &["https", "http"], "the server's address")?;
    let proxy = given(cluster.proxy_url.as_ref()).cloned();
    let guard = AddressGuard { refuse_local: false, proxy_is_ours: proxy.is_none() };
    let proxy = match proxy.or_else(|| proxy::of_environment(&server)) {
        Some(proxy) => Some(url(&proxy, &["http", "https", "socks5", "socks5h"], "proxy-url")?),
        None => None,
    };
    let pem = material(
        cluster.certificate_authority_data.as_ref(),
        cluster.certificate_authority.as_ref(),
        "certificate-authority",
        dir,
        trust,
    )?;
    let authorities = pem.map(|pem| certificates(&pem)).transpose()?;
    Ok(Endpoint {
        server,
        authorities,
        insecure: cluster.insecure_skip_tls_verify.unwrap_or(false),
        tls_server_name: given(cluster.tls_server_name.as_ref()).cloned(),
        proxy: proxy.map(Redacted),
        guard,
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match ders {
        Ok(ders) if !ders.is_empty() => Ok(ders.iter().map(|der| der.to_vec()).collect()),
        Ok(_) => Err("its certificate authority holds no certificate".to_owned()),
        Err(_) => Err("its certificate authority is not PEM that can be read".to_owned()),
    }
}

fn auth(user: &User, cluster: &Cluster, dir: &Path, trust: Trust) -> Result<Auth, String> {
    let part = |data: &Option<String>, file: &Option<String>, name| {
        material(data.as_ref(), file.as_ref(), name, dir, trust)
    };
    let certificate =
        part(&user.client_certificate_data, &user.client_certificate, "client-certificate")?;
    let key = part(&user.client_key_data, &user.client_key, "client-key")?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key: Redacted(key) }),
        (None, None) => None,
        (Some(_), None) => {
            return Err("its user has a client certificate without its key".to_owned());
        }
        (None, Some(_)) => {
            return Err("its user has a key without its client certificate".to_owned());
        }
    };
    // As in kubectl, a file takes precedence over a token.
    let bearer = if let Some(file) = given(user.token_file.as_ref()) {
        may_use_files(trust, "tokenFile")?;
        Bearer::TokenFile(dir.join(file))
    } else if let Some(token) = given(user.token.as_ref()) {
        Bearer::Token(Redacted(token.clone()))
    } else if let Some(exec) = &user.exec {
        Bearer::Exec(plugin(exec, cluster, dir, trust)?)
    } else if let Some(name) = given(user.username.as_ref()) {
        let password = user.password.clone().unwrap_or_default();
        Bearer::Basic { user: name.clone(), password: Redacted(password) }
    } else if user.auth_provider.is_some() {
        return Err(
            "its user has an auth-provider, which Kubernetes has given up in favour of exec \
                    plugins; use the provider's plugin (kubelogin, gke-gcloud-auth-plugin)"
                .to_owned(),
        );
    } else {
        Bearer::None
    };
    let groups = user.as_groups.clone().unwrap_or_default();
    let acts = user.r#as.is_some() || user.as_uid.is_some() || !groups.is_empty();
    let impersonate =
        acts.then(|| Impersonate { user: user.r#as.clone(), uid: user.as_uid.clone(), groups });
    Ok(Auth { identity, bearer, impersonate })
}

fn plugin(exec: &ExecEntry, cluster: &Cluster, dir: &Path, trust: Trust) -> Result<Exec, String> {
    if matches!(trust, Trust::Sent) {
        return Err(
            "its user runs a program (exec), which only a kubeconfig file on this server's \
                    disk may ask for; use a token or a client certificate"
                .to_owned(),
        );
    }
    let command = given(exec.command.as_ref()).ok_or("the exec of its user has no command")?;
    if exec.interactive_mode.as_deref() == Some("Always") {
        return Err(format!("its plugin {command} wants a terminal to ask on, and here is none"));
    }
    let version = exec.api_version.as_deref().unwrap_or_default();
    let version = Version::parse(version).ok_or_else(|| {
        "the exec of its user has an apiVersion that is no longer spoken; it must be \
         client.authentication.k8s.io/v1 or v1beta1"
            .to_owned()
    })?;
    // As in kubectl, a bare name is looked up in PATH, and anything else is relative to the file.
    let command = if command.contains('/') {
        dir.join(command).to_string_lossy().into_owned()
    } else {
        command.clone()
    };
    let extension = cluster.extensions.iter().flatten().find(|known| known.name == EXEC_EXTENSION);
    let env = exec.env.iter().flatten();
    Ok(Exec {
        version,
        command,
        args: exec.args.clone().unwrap_or_default(),
        env: env
            .map(|variable| (variable.name.clone(), Redacted(variable.value.clone())))
            .collect(),
        install_hint: exec.install_hint.clone(),
        provide_cluster_info: exec.provide_cluster_info,
        cluster_config: extension.and_then(|extension| extension.extension.clone()),
    })
}

/// Returns inline data or the content of the file. As in kubectl, inline data takes precedence.
fn material(
    data: Option<&String>,
    file: Option<&String>,
    name: &str,
    dir: &Path,
    trust: Trust,
) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = given(data) {
        // Files that were written by hand often have wrapped lines.
        let packed: String = data.split_whitespace().collect();
        let decoded = BASE64_STANDARD.decode(packed);
        return decoded.map(Some).map_err(|_| format!("its {name}-data is not base64"));
    }
    let Some(file) = given(file) else { return Ok(None) };
    may_use_files(trust, name)?;
    let path = dir.join(file);
    let mut content = Vec::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(MOST_FILE).read_to_end(&mut content))
        .map_err(|error| format!("its {name} {} cannot be read: {error}", path.display()))?;
    Ok(Some(content))
}

fn may_use_files(trust: Trust, name: &str) -> Result<(), String> {
    match trust {
        Trust::Local => Ok(()),
        Trust::Sent => Err(format!(
            "its {name} is a file, which is not here; put what is in it into the kubeconfig \
             (kubectl config view --flatten --minify --raw)"
        )),
    }
}

fn given(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

fn url(text: &str, schemes: &[&str], what: &str) -> Result<Uri, String> {
    let wanted = || {
        let begins: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
        format!("{what} is not an address that begins with {}", begins.join(" or "))
    };
    let uri: Uri = text.trim().parse().map_err(|_| wanted())?;
    let known = uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme));
    if known && uri.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(wanted()) }
}

/// Returns every file that the kubeconfig names and whose content is part of an [`Access`].
pub(crate) fn referenced(path: &Path, kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let clusters = kubeconfig.clusters.values().flatten();
    let authorities = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
    let users = kubeconfig.users.values().flatten();
    let identities =
        users.flat_map(|user| [user.client_certificate.as_ref(), user.client_key.as_ref()]);
    let named = authorities.chain(identities.flatten());
    named.filter(|name| !name.is_empty()).map(|name| dir.join(name)).collect()
}

/// Reads a kubeconfig that was sent to us: the access of `context`, of its current context, or of its
/// only one.
pub(crate) fn sent(text: &str, context: Option<&str>) -> Result<Access, String> {
    if text.len() > MOST_SENT {
        return Err("the kubeconfig has more than 1 MiB, which no Secret can hold".to_owned());
    }
    let kubeconfig = Kubeconfig::parse(text).map_err(|why| format!("the kubeconfig {why}"))?;
    let only = match kubeconfig.contexts.as_slice() {
        [(only, _)] => Some(only.as_str()),
        _ => None,
    };
    let context = context
        .or(kubeconfig.current.as_deref())
        .or(only)
        .ok_or("the kubeconfig has no current context; say which one is meant")?;
    let merged = Merged::new([(Path::new(""), &kubeconfig)]);
    merged.access(context, Trust::Sent)
}

/// As [`sent`], for a cluster that may have an address of this machine only if `local` says so.
pub(crate) fn sent_by_others(
    text: &str,
    context: Option<&str>,
    local: bool,
) -> Result<Access, String> {
    let mut access = sent(text, context)?;
    access.endpoint.guard.refuse_local = !local;
    Ok(access)
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
