//! `Access`: how to reach a cluster and as whom; `Credentials`: what a client sends to it.
//!
//! Contract:
//! - `Access` is a plain value: only a change of content makes a new connection. Certificate files are
//!   part of it by content; token files and plugins by name, because their tokens change while the
//!   cluster stays the same.
//! - All credentials come from [`fetch`]. It never blocks the runtime and ends by its deadline.
//! - A bearer token is renewed in place, before it expires, every minute for files, and after a 401;
//!   requests send the newest. A new client certificate needs a new client: the connector is told.
//! - Renewal ends with the last user of the credentials: every client holds them.
//! - [`Redacted`] keeps secrets out of `Debug`.

pub(crate) mod exec;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, Uri};
use objects::kinds::Impersonation;
use prometheus_client::metrics::gauge::Gauge;
use stallproof::backoff::Curve;
use stallproof::deadline::LONGEST;
use stallproof::tasks::TaskHandle;
use stallproof::{Backoff, Deadline, Snapshot};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use crate::connect::ProbeTrigger;
use crate::context::FleetContext;
use crate::failure::{Failure, Reason};
use crate::local_address::AddressGuard;
use exec::Exec;

/// A token, a key or a password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Redacted<T>(pub(crate) T);

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// A cluster's endpoint and our credentials for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Access {
    pub(crate) endpoint: Endpoint,
    pub(crate) auth: Auth,
    pub(crate) namespace: String,
    /// Users act under their own names, if it is there.
    pub(crate) impersonation: Option<Impersonation>,
}

impl Access {
    /// The same, with users who act under their own names. A kubeconfig whose user acts as somebody else
    /// already cannot do both.
    pub(crate) fn impersonating(self, impersonation: Impersonation) -> Result<Self, String> {
        if self.auth.impersonate.is_some() {
            return Err(
                "its kubeconfig acts as somebody (`as`), and users are to act under their own names: \
                 remove one of the two"
                    .to_owned(),
            );
        }
        if let Some(problem) = Impersonation::problem(&impersonation.prefix) {
            return Err(format!("the prefix {:?} {problem}", impersonation.prefix));
        }
        Ok(Self { impersonation: Some(impersonation), ..self })
    }
}

/// The server, and how it is verified. While this is the same, a client with older credentials still
/// talks to the right cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) server: Uri,
    /// Certificates in DER; `None` means those that the operating system trusts.
    pub(crate) authorities: Option<Vec<Vec<u8>>>,
    pub(crate) insecure: bool,
    pub(crate) tls_server_name: Option<String>,
    /// It may have a password.
    pub(crate) proxy: Option<Redacted<Uri>>,
    pub(crate) guard: AddressGuard,
}

impl Endpoint {
    /// The address without user and password.
    pub(crate) fn address(&self) -> String {
        bare(&self.server)
    }
}

/// Returns scheme, host, port and path of an address, without user and password.
pub(crate) fn bare(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("https");
    let port = uri.port_u16().map_or(String::new(), |port| format!(":{port}"));
    let path = uri.path().trim_end_matches('/');
    format!("{scheme}://{}{port}{path}", uri.host().unwrap_or_default())
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Auth {
    pub(crate) identity: Option<Identity>,
    pub(crate) bearer: Bearer,
    /// `as`, `as-uid`, `as-groups`.
    pub(crate) impersonate: Option<Impersonate>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Impersonate {
    pub(crate) user: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
}

/// A client certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Redacted<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Bearer {
    #[default]
    None,
    Token(Redacted<String>),
    TokenFile(PathBuf),
    Basic {
        user: String,
        password: Redacted<String>,
    },
    /// The plugin may give a client certificate instead.
    Exec(Exec),
}

impl Auth {
    /// Names the credential, for the sentence that a server did not accept it.
    pub(crate) fn describe(&self) -> String {
        let bearer = match &self.bearer {
            Bearer::None if self.identity.is_some() => return "our client certificate".to_owned(),
            Bearer::None => return "us: the context's user has no credentials".to_owned(),
            Bearer::Token(_) => "the token of the context's user".to_owned(),
            Bearer::TokenFile(path) => format!("the token in {}", path.display()),
            Bearer::Basic { user, .. } => format!("the password of {user}"),
            Bearer::Exec(exec) => format!("what the plugin {} gives", exec.program()),
        };
        match self.identity {
            Some(_) => format!("{bearer} and our client certificate"),
            None => bearer,
        }
    }

    /// Whether the token can change while the configuration stays the same.
    fn is_renewable(&self) -> bool {
        matches!(self.bearer, Bearer::TokenFile(_) | Bearer::Exec(_))
    }
}

/// The result of [`fetch`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fetched {
    pub(crate) identity: Option<Identity>,
    pub(crate) header: Option<HeaderValue>,
    /// The time until the next fetch.
    pub(crate) renew_in: Option<Duration>,
}

/// How long a token file's content is used, up to a quarter less: the kubelet replaces projected tokens
/// at 80% of their life, long before they expire.
const REREAD: Duration = Duration::from_secs(60);
/// A longer file is not a token.
const LONGEST_TOKEN: u64 = 1 << 20;
/// The least time between renewals after a 401: a server that keeps refusing us must not make us run
/// its plugin in a loop.
const RENEW_AGAIN: Duration = Duration::from_secs(5);
const RENEW_RETRY: Curve = Curve { first: Duration::from_secs(2), most: Duration::from_secs(60) };

/// Gets the credentials that `access` describes: reads the file or runs the plugin.
pub(crate) async fn fetch(
    cluster: &str,
    access: &Access,
    context: &FleetContext,
    deadline: Deadline,
) -> Result<Fetched, Failure> {
    let mut fetched =
        Fetched { identity: access.auth.identity.clone(), header: None, renew_in: None };
    match &access.auth.bearer {
        Bearer::None => {}
        Bearer::Token(token) => fetched.header = Some(bearer(&token.0, "the token")?),
        Bearer::Basic { user, password } => {
            let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.0));
            fetched.header = Some(header("Basic", &pair, "user and password")?);
        }
        Bearer::TokenFile(path) => {
            let shown = path.display();
            let token = read_token(path, deadline.within(context.timing.answer)).await;
            let token = token.map_err(|why| {
                Failure::new(Reason::Setup, format!("the token file {shown} {why}"))
            })?;
            fetched.header = Some(bearer(&token, &format!("the token in {shown}"))?);
            fetched.renew_in = Some(REREAD.mul_f64(0.75 + fastrand::f64() / 4.0));
        }
        Bearer::Exec(exec) => {
            let given = context.plugins.run(cluster, exec, &access.endpoint, deadline).await?;
            if let Some(token) = &given.token {
                fetched.header =
                    Some(bearer(&token.0, &format!("the token of {}", exec.program()))?);
            }
            fetched.identity = given.identity.or(fetched.identity);
            fetched.renew_in = given.valid_for.map(|left| left.mul_f64(0.8));
        }
    }
    Ok(fetched)
}

async fn read_token(path: &PathBuf, deadline: Deadline) -> Result<String, String> {
    let read = async {
        let mut token = String::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(LONGEST_TOKEN).read_to_string(&mut token).await.map(|_| token)
    };
    match deadline.bound(read).await {
        Ok(Ok(token)) if token.trim().is_empty() => Err("is empty".to_owned()),
        Ok(Ok(token)) => Ok(token.trim().to_owned()),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Err(_) => Err("cannot be read: its file system does not answer".to_owned()),
    }
}

fn bearer(token: &str, what: &str) -> Result<HeaderValue, Failure> {
    header("Bearer", token.trim(), what)
}

fn header(scheme: &str, value: &str, what: &str) -> Result<HeaderValue, Failure> {
    let mut header = HeaderValue::try_from(format!("{scheme} {value}")).map_err(|_| {
        Failure::setup(format!("{what} cannot be sent: it has characters that no header may have"))
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// Credentials in use. Every client that sends them holds this.
pub(crate) struct Credentials {
    pub(crate) access: Arc<Access>,
    pub(crate) identity: Option<Identity>,
    header: Snapshot<Option<HeaderValue>>,
    /// Notified after a 401.
    refused: Arc<Notify>,
    renewing: OnceLock<TaskHandle<()>>,
    live: Gauge,
}

impl Credentials {
    pub(crate) fn new(access: Arc<Access>, fetched: Fetched, context: &FleetContext) -> Arc<Self> {
        context.metrics.credentials.inc();
        Arc::new(Self {
            access,
            identity: fetched.identity,
            header: Snapshot::new(fetched.header),
            refused: Arc::default(),
            renewing: OnceLock::new(),
            live: context.metrics.credentials.clone(),
        })
    }

    /// Renews them until the last user is gone. `trigger` fires when a new client is needed, and when a
    /// refused token has been replaced.
    pub(crate) fn keep_fresh(
        self: &Arc<Self>,
        cluster: &Arc<str>,
        renew_in: Option<Duration>,
        context: &Arc<FleetContext>,
        trigger: &Arc<ProbeTrigger>,
    ) {
        if !self.access.auth.is_renewable() {
            return;
        }
        let name = format!("credentials of {cluster}");
        let renewing = renew(
            Arc::downgrade(self),
            Arc::clone(&self.refused),
            renew_in,
            Arc::clone(cluster),
            Arc::clone(context),
            Arc::clone(trigger),
        );
        let stop = context.tasks.stopping();
        let task = context.tasks.spawn(name, async move {
            stop.bound(renewing).await;
        });
        self.renewing.get_or_init(|| task);
    }

    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.header.read(Option::clone)
    }

    /// Reports that the server answered a call with 401.
    pub(crate) fn were_refused(&self) {
        self.refused.notify_one();
    }
}

/// Holds no credentials while it waits, because they would never be dropped.
async fn renew(
    credentials: Weak<Credentials>,
    refused: Arc<Notify>,
    mut renew_in: Option<Duration>,
    cluster: Arc<str>,
    context: Arc<FleetContext>,
    trigger: Arc<ProbeTrigger>,
) {
    let mut backoff = Backoff::new(RENEW_RETRY);
    let mut fetched_at = None;
    loop {
        let was_refused = tokio::select! {
            () = refused.notified() => true,
            () = sleep(renew_in.unwrap_or(LONGEST)) => false,
        };
        if let Some(last) = fetched_at.filter(|_| was_refused) {
            sleep_until(last + RENEW_AGAIN).await;
        }
        fetched_at = Some(Instant::now());
        let Some(access) = credentials.upgrade().map(|held| Arc::clone(&held.access)) else {
            return;
        };
        let deadline = Deadline::after(context.credentials_within());
        let fetched = fetch(&cluster, &access, &context, deadline).await;
        let Some(held) = credentials.upgrade() else { return };
        match fetched {
            Ok(fetched) if fetched.identity == held.identity => {
                backoff.succeeded();
                renew_in = fetched.renew_in;
                if held.header.publish(fetched.header) && was_refused {
                    trigger.probe();
                }
            }
            // The connector fetches its own for the new client; these are used until then.
            Ok(_) => {
                backoff.succeeded();
                renew_in = None;
                trigger.rebuild();
            }
            Err(failure) => {
                warn!(cluster = %cluster, why = failure.why, "credentials cannot be renewed");
                renew_in = Some(backoff.failed().wait);
            }
        }
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        self.live.dec();
        if let Some(task) = self.renewing.get() {
            task.abort();
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access", &self.access).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
