//! Logins of command lines by a code that the user enters in a browser (RFC 8628).
//!
//! Contract: the device code stays here; a command line has a handle of 256 random bits, which works for
//! as long as the provider says, [`LONGEST`] at most. There are [`MOST`] at once; the oldest makes room. How
//! often a login can be begun from one address is limited. The provider is not asked more often than it
//! wants, however often a command line asks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use stallproof::{Deadline, TrackedMutex};
use tokio::time::Instant;

use super::endpoints::{ProviderError, Purpose};
use super::{Credential, Federation, OidcError, Provider, Vouched};
use crate::access::Access;
use crate::buckets::{Buckets, Rate};
use crate::secret::{Fingerprint, Secret};

const MOST: usize = 1024;
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// RFC 8628's own default.
const INTERVAL: Duration = Duration::from_secs(5);
/// By how much the provider wants to be asked less often when it says so.
const SLOWER: Duration = Duration::from_secs(5);
/// A few people behind one address, each with a few tries.
const BEGIN: Rate = Rate { burst: 10, every: Duration::from_secs(6) };
const ADDRESSES: usize = 4096;

/// A code for the user to enter.
#[derive(Debug)]
pub struct DeviceStart {
    pub provider: String,
    /// To be shown to nobody but this process.
    pub handle: Secret,
    pub user_code: String,
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: Option<String>,
    pub interval: Duration,
    pub lasts: Duration,
}

#[derive(Debug)]
pub enum DevicePoll {
    /// The user has not entered the code yet.
    Pending,
    LoggedIn(Credential),
}

#[derive(Debug)]
pub(super) struct Devices {
    /// The oldest first. Every beginning and every poll writes it, for a few lines.
    waiting: TrackedMutex<Vec<Device>>,
    begins: Buckets<IpAddr>,
}

#[derive(Debug)]
struct Device {
    handle: Fingerprint,
    provider: Arc<str>,
    provider_stamp: Fingerprint,
    code: Secret,
    until: Instant,
    interval: Duration,
    next: Instant,
}

#[derive(Deserialize)]
struct Authorization {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl Devices {
    pub(super) fn new() -> Self {
        Self {
            waiting: TrackedMutex::new("access oidc devices", Vec::new()),
            begins: Buckets::new(BEGIN, ADDRESSES),
        }
    }

    /// The code to ask the provider with, if it is time to; `Err` for a handle that is not known.
    fn due(&self, handle: &str) -> Result<Option<(Arc<str>, Fingerprint, Secret)>, OidcError> {
        let (fingerprint, now) = (Fingerprint::of(handle), Instant::now());
        let mut waiting = self.waiting.lock();
        waiting.retain(|device| now < device.until);
        let device = waiting.iter_mut().find(|device| device.handle == fingerprint);
        let device = device.ok_or(OidcError::BadState)?;
        if now < device.next {
            return Ok(None);
        }
        // Whoever else asks meanwhile waits for the next turn.
        device.next = now + device.interval;
        Ok(Some((Arc::clone(&device.provider), device.provider_stamp, device.code.clone())))
    }

    fn slow_down(&self, handle: &str) {
        let fingerprint = Fingerprint::of(handle);
        let mut waiting = self.waiting.lock();
        if let Some(device) = waiting.iter_mut().find(|device| device.handle == fingerprint) {
            device.interval += SLOWER;
            device.next = Instant::now() + device.interval;
        }
    }

    /// Returns whether it was still there: of two that ask at once one is logged in.
    fn remove(&self, handle: &str) -> bool {
        let fingerprint = Fingerprint::of(handle);
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.retain(|device| device.handle != fingerprint);
        waiting.len() < before
    }
}

impl Federation {
    pub(super) async fn begin_device(
        &self,
        access: &Access,
        provider: &Provider,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<DeviceStart, ProviderError> {
        let limited = |retry_after| ProviderError::Busy { retry_after };
        self.devices.begins.take(&from).map_err(limited)?;
        let found = self.discovered(provider, deadline).await?;
        let Some(endpoint) = &found.device_authorization_endpoint else {
            let why = "it offers no login for command lines (device authorization); log in with a \
                       browser and make a token, or use a user of Fairlead's own";
            return Err(ProviderError::Refused(why.to_owned()));
        };
        let spec = &provider.object.spec;
        let scopes = format!("openid {}", spec.scopes.join(" "));
        let form = vec![("scope".to_owned(), Secret::new(scopes.trim()))];
        let told: Authorization =
            self.post(access, provider, endpoint, form, Purpose::Login, deadline).await?;
        let lasts = Duration::from_secs(told.expires_in).min(LONGEST);
        let interval = told.interval.map_or(INTERVAL, Duration::from_secs);
        let interval = interval.clamp(Duration::from_secs(1), Duration::from_secs(60));
        let handle = Secret::random();
        let now = Instant::now();
        let device = Device {
            handle: Fingerprint::of(handle.expose()),
            provider: Arc::clone(&provider.name),
            provider_stamp: provider.stamp,
            code: Secret::new(told.device_code),
            until: now + lasts,
            interval,
            next: now + interval,
        };
        let mut waiting = self.devices.waiting.lock();
        waiting.retain(|device| now < device.until);
        if waiting.len() >= MOST {
            waiting.remove(0);
        }
        waiting.push(device);
        drop(waiting);
        Ok(DeviceStart {
            provider: provider.name.to_string(),
            handle,
            user_code: told.user_code,
            verification_uri: told.verification_uri,
            verification_uri_complete: told.verification_uri_complete,
            interval,
            lasts,
        })
    }

    /// The user, once the code was entered.
    pub(super) async fn poll_device(
        &self,
        access: &Access,
        handle: &str,
        deadline: Deadline,
    ) -> Result<Option<Vouched>, OidcError> {
        let Some((name, stamp, code)) = self.devices.due(handle)? else { return Ok(None) };
        let (_, provider) = access.provider(&name)?;
        if provider.stamp != stamp {
            self.devices.remove(handle);
            return Err(OidcError::BadState);
        }
        let form = vec![
            ("grant_type".to_owned(), Secret::new("urn:ietf:params:oauth:grant-type:device_code")),
            ("device_code".to_owned(), code),
        ];
        let tokens = match self.tokens(access, &provider, form, deadline).await {
            Ok(tokens) => tokens,
            Err(ProviderError::Said { error, .. }) if error == "authorization_pending" => {
                return Ok(None);
            }
            Err(ProviderError::Said { error, .. }) if error == "slow_down" => {
                self.devices.slow_down(handle);
                return Ok(None);
            }
            // Away for a moment: the command line asks again.
            Err(error @ (ProviderError::Away(_) | ProviderError::Busy { .. })) => {
                return Err(error.of(&provider));
            }
            Err(error) => {
                self.devices.remove(handle);
                return Err(error.of(&provider));
            }
        };
        if !self.devices.remove(handle) {
            return Err(OidcError::BadState);
        }
        let vouched = self.vouched(&provider, tokens, None, deadline).await;
        vouched.map(Some).map_err(|error| error.of(&provider))
    }
}
