//! Signatures of images that run, read from their registries in the background.
//!
//! ```text
//! pods, page by page ──► images by digest ──► their registries (those that are named) ──► ImageReport ──► reviews' snapshot
//! ```
//!
//! Contract:
//! - The leader does it; no review waits for it, or asks anybody. Only registries that `admission.registries`
//!   names are asked: else whoever makes a pod could have this process connect to any host.
//! - Bounded: [`MOST`] images, [`AT_ONCE`] at the same time, each within [`EACH`]. An image is read again
//!   after [`AGAIN`]. A registry that fails is left alone for a while, longer each time, and holds up no other.
//! - A signature that is kept already is not written again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use admission::Document;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use objects::kinds::ImageReport;
use objects::{Attempt, Error, Expected, Id, Leader, Next, Objects, Pace, Reconciler, UntypedKind};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Map, Snapshot};
use tracing::{info, warn};

use crate::cli::http::Trust;
use crate::cli::registry::{Registry, RegistryImage, is_digest};

const POD: UntypedKind =
    UntypedKind { group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true };
const PAGE: u32 = 100;
const PAGE_TIME: Duration = Duration::from_secs(15);
/// Images whose signatures are read; a large cluster runs some thousand.
const MOST: usize = 5000;
const AT_ONCE: usize = 4;
const EACH: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_secs(60);
/// Somebody may have signed it since.
const AGAIN: Duration = Duration::from_secs(6 * 60 * 60);
const LEFT_ALONE: Curve =
    Curve { first: Duration::from_secs(30), most: Duration::from_secs(60 * 60) };

/// Which registries are read, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registries {
    /// Hosts, with their ports; whether each speaks http.
    pub(crate) hosts: BTreeMap<String, bool>,
    /// Authorities of registries beside the public ones.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    /// `USER:PASSWORD` by host.
    pub(crate) credentials: BTreeMap<String, String>,
}

impl Registries {
    /// Reads `HOST`, or `http://HOST` for one without TLS.
    pub(crate) fn hosts(list: &[String]) -> BTreeMap<String, bool> {
        let host = |text: &String| match text.strip_prefix("http://") {
            Some(host) => (host.to_owned(), true),
            // The name that people know it by, and the host that is asked.
            None if text == "docker.io" => ("registry-1.docker.io".to_owned(), false),
            None => (text.clone(), false),
        };
        list.iter().map(host).collect()
    }

    /// Reads lines of `HOST USER:PASSWORD`; says which line is not one, and nothing of it.
    pub(crate) fn credentials(text: &str) -> Result<BTreeMap<String, String>, String> {
        let mut all = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = || format!("line {number} is not HOST USER:PASSWORD");
            let (host, login) = line.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
            if !login.contains(':') {
                return Err(wrong());
            }
            all.insert(host.to_owned(), login.trim().to_owned());
        }
        Ok(all)
    }
}

/// Reads signatures until the term ends. Returns at once.
pub(crate) fn lead(
    leader: &Leader,
    registries: &Registries,
    clusters: &Snapshot<Map<String, Objects>>,
) {
    if registries.hosts.is_empty() {
        return;
    }
    let reader = SignatureReader {
        registries: registries.clone(),
        clusters: clusters.clone(),
        store: leader.objects.guarded(&leader.fence),
        read: BTreeMap::new(),
        left_alone: BTreeMap::new(),
    };
    let pace = Pace { attempt: Duration::from_secs(300), ..Pace::default() };
    leader.reconcile("image-signatures", "", pace, reader);
}

/// An image by its content.
type ImageKey = (String, String, String);

struct SignatureReader {
    registries: Registries,
    clusters: Snapshot<Map<String, Objects>>,
    store: Objects,
    /// When each image was last read.
    read: BTreeMap<ImageKey, Instant>,
    /// Registries that fail, and until when they are not asked.
    left_alone: BTreeMap<String, (Backoff, Instant)>,
}

impl Reconciler for SignatureReader {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        attempt.step("listing images");
        let mut running = BTreeSet::new();
        let clusters: Vec<_> = self.clusters.load().values().cloned().collect();
        for objects in clusters {
            let page = || attempt.deadline.within(PAGE_TIME);
            let hosts = &self.registries.hosts;
            let take = |pod: kube::core::DynamicObject| {
                images_of(&pod.data, |host| hosts.contains_key(host), &mut running);
            };
            objects.visit(&POD, PAGE, page, take).await?;
        }
        self.read.retain(|image, _| running.contains(image));
        let now = Instant::now();
        let due: Vec<_> = running.into_iter().filter(|image| self.is_due(image, now)).collect();
        attempt.step("reading registries");
        let registries = &self.registries;
        let found = stream::iter(due.into_iter().take(MOST)).map(|image| async move {
            let deadline = attempt.deadline.within(EACH);
            let read = deadline.bound(signatures(registries, &image)).await;
            let read = read.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
            (image, read)
        });
        let found: Vec<_> = found.buffer_unordered(AT_ONCE).collect().await;
        for (image, read) in found {
            match read {
                Ok(documents) => {
                    self.left_alone.remove(&image.0);
                    for document in &documents {
                        write(&self.store, document, &image.0, attempt.deadline).await?;
                    }
                    self.read.insert(image, Instant::now());
                }
                Err(why) => self.failed(&image, &why),
            }
        }
        Ok(Next::Within(EVERY))
    }
}

impl SignatureReader {
    fn is_due(&self, image: &ImageKey, now: Instant) -> bool {
        let is_old = |read: &Instant| now.duration_since(*read) >= AGAIN;
        self.read.get(image).is_none_or(is_old)
            && self.left_alone.get(&image.0).is_none_or(|(_, until)| *until <= now)
    }

    /// Leaves a registry alone, longer each time; images of one attempt count once.
    fn failed(&mut self, (host, repository, digest): &ImageKey, why: &str) {
        let now = Instant::now();
        let (backoff, until) =
            self.left_alone.entry(host.clone()).or_insert_with(|| (Backoff::new(LEFT_ALONE), now));
        if *until <= now {
            *until = now + backoff.failed().wait;
            warn!(host, repository, digest, why, "signatures of an image cannot be read");
        }
    }
}

/// The images of a pod by digest, in registries that are wanted: as its status says what runs, and as its spec
/// pins them.
fn images_of(pod: &Value, wanted: impl Fn(&str) -> bool, all: &mut BTreeSet<ImageKey>) {
    let named = [
        ("/status/containerStatuses", "imageID"),
        ("/status/initContainerStatuses", "imageID"),
        ("/spec/containers", "image"),
        ("/spec/initContainers", "image"),
    ];
    for (list, field) in named {
        let containers = pod.pointer(list).and_then(Value::as_array);
        for text in containers.into_iter().flatten().filter_map(|it| it[field].as_str()) {
            let text = text.split_once("://").map_or(text, |(_, image)| image);
            let Ok(image) = RegistryImage::parse(text) else { continue };
            if all.len() < MOST && is_digest(&image.reference) && wanted(&image.host) {
                all.insert((image.host, image.repository, image.reference));
            }
        }
    }
}

async fn signatures(registries: &Registries, image: &ImageKey) -> Result<Vec<Value>, String> {
    let (host, repository, digest) = image.clone();
    let plain = registries.hosts.get(&host).copied().unwrap_or_default();
    let trust = || match registries.authorities.is_empty() {
        true => Trust::Public,
        false => Trust::Authorities(registries.authorities.clone()),
    };
    let credentials = registries.credentials.get(&host).cloned();
    let image = RegistryImage { host, repository, reference: digest.clone() };
    let registry = Registry::of(&image, plain, trust, credentials);
    let mut registry = registry.map_err(|failure| failure.0)?;
    registry.signatures(&digest).await.map_err(|failure| failure.0)
}

/// Keeps a signature, unless it is kept. One that cannot be read is nobody's.
async fn write(
    store: &Objects,
    document: &Value,
    host: &str,
    deadline: Deadline,
) -> Result<(), Error> {
    let by = format!("registry {host}");
    let read = admission::document(document, Timestamp::now().as_second(), &by);
    let report = match read {
        Ok(Document::Report(report)) => report,
        Ok(_) => return Ok(()),
        Err(why) => {
            warn!(host, %why, "a signature cannot be read and is left out");
            return Ok(());
        }
    };
    let id = Id::of(&*report);
    if store.get::<ImageReport>(&id, deadline).await?.is_none() {
        store.apply(&*report, Expected::Any, deadline).await?;
        info!(host, name = %id, "a signature of an image was read");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
