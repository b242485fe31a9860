//! Signatures of an image, read from its registry: cosign's `.sig` tag, and bundles among the referrers.
//!
//! Contract: only what hangs on the image's digest is read, each blob is held against the digest by which
//! it is named, and everything has a bound: signatures, sizes, times. A password goes to the registry and to
//! the place that the registry names for tokens over https, and is in no error. One redirect is followed,
//! over https and without credentials: many registries keep their blobs elsewhere.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, LOCATION, USER_AGENT, WWW_AUTHENTICATE};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::cli::http::{Origin, Trust, read};
use crate::output::Failure;

/// For each answer.
const TIME: Duration = Duration::from_secs(20);
/// Manifests, payloads and bundles are some kilobytes.
const LARGEST: usize = 4 << 20;
/// Signatures that are read of one image.
const MOST: usize = 32;
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistryImage {
    pub(crate) host: String,
    pub(crate) repository: String,
    /// A tag or a digest.
    pub(crate) reference: String,
}

impl RegistryImage {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong =
            || Failure(format!("{text:?} is no image: write HOST/REPOSITORY[:TAG][@DIGEST]"));
        let (host, rest) = match text.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => ("docker.io", text),
        };
        let (name, digest) = match rest.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (rest, None),
        };
        let last = name.rfind('/').map_or(0, |at| at + 1);
        let (repository, tag) = match name[last..].find(':') {
            Some(at) => (&name[..last + at], &name[last + at + 1..]),
            None => (name, "latest"),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if repository.is_empty() || !repository.chars().all(plain) || !is_reference(tag) {
            return Err(wrong());
        }
        let hub = matches!(host, "docker.io" | "index.docker.io");
        let repository = if hub && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        let host = if hub { "registry-1.docker.io" } else { host };
        let reference = digest.unwrap_or(tag);
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), repository, reference: reference.to_owned() })
    }
}

fn is_reference(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// A registry that is asked about one repository.
pub(crate) struct Registry {
    origin: Origin,
    repository: String,
    /// `USER:PASSWORD`, if there are any.
    credentials: Option<String>,
    /// The value of the header `Authorization`.
    authorization: Option<String>,
}

impl Registry {
    /// `plain` speaks http; the credentials then go over it.
    pub(crate) fn of(
        image: &RegistryImage,
        plain: bool,
        trust: impl Fn() -> Trust,
        credentials: Option<String>,
    ) -> Result<Self, Failure> {
        let scheme = if plain { "http" } else { "https" };
        let url: Uri = format!("{scheme}://{}/", image.host)
            .parse()
            .map_err(|_| Failure(format!("{:?} is no registry", image.host)))?;
        let origin = Origin::of(&url, trust(), TIME);
        let origin = origin.map_err(|error| Failure(format!("{}: {error}", image.host)))?;
        let repository = image.repository.clone();
        Ok(Self { origin, repository, credentials, authorization: None })
    }

    /// The digest of what a tag names now.
    pub(crate) async fn digest(&mut self, reference: &str) -> Result<String, Failure> {
        if is_digest(reference) {
            return Ok(reference.to_owned());
        }
        let path = format!("/v2/{}/manifests/{reference}", self.repository);
        let manifest = self.get(&path, MANIFESTS).await?;
        let missing = || Failure(format!("there is no {}:{reference}", self.repository));
        Ok(digest_of(&manifest.ok_or_else(missing)?))
    }

    /// Every signature of the image with this digest, as a document each.
    pub(crate) async fn signatures(&mut self, digest: &str) -> Result<Vec<Value>, Failure> {
        let tag = digest.replace(':', "-");
        let mut found = Vec::new();
        let signed = self.manifest(&format!("{tag}.sig")).await?;
        for layer in layers(signed.as_ref()) {
            let Some(payload) = self.blob(layer).await? else { continue };
            found.push(downloaded(&payload, &layer["annotations"]));
        }
        let path = format!("/v2/{}/referrers/{digest}", self.repository);
        let referrers = match self.get(&path, MANIFESTS).await? {
            Some(index) => Some(parse(&index)?),
            // A registry that knows no referrers has them under a tag.
            None => self.manifest(&tag).await?,
        };
        let referrers = referrers.as_ref().and_then(|index| index["manifests"].as_array());
        for referrer in referrers.into_iter().flatten().take(MOST) {
            let kind = referrer["artifactType"].as_str().unwrap_or_default();
            let Some(of) = referrer["digest"].as_str().filter(|of| is_digest(of)) else { continue };
            if !kind.starts_with(BUNDLE) {
                continue;
            }
            let manifest = self.manifest(of).await?;
            for layer in layers(manifest.as_ref()) {
                let media = layer["mediaType"].as_str().unwrap_or_default();
                if media.starts_with(BUNDLE)
                    && let Some(bundle) = self.blob(layer).await?
                {
                    found.push(parse(&bundle)?);
                }
            }
        }
        found.truncate(MOST);
        Ok(found)
    }

    async fn manifest(&mut self, reference: &str) -> Result<Option<Value>, Failure> {
        let path = format!("/v2/{}/manifests/{reference}", self.repository);
        let Some(bytes) = self.get(&path, MANIFESTS).await? else { return Ok(None) };
        if is_digest(reference) && digest_of(&bytes) != reference {
            return Err(Failure(format!("the registry's manifest is not {reference}")));
        }
        parse(&bytes).map(Some)
    }

    /// What a layer names; none if it is not there.
    async fn blob(&mut self, layer: &Value) -> Result<Option<Bytes>, Failure> {
        let Some(digest) = layer["digest"].as_str().filter(|digest| is_digest(digest)) else {
            return Ok(None);
        };
        let path = format!("/v2/{}/blobs/{digest}", self.repository);
        let Some(blob) = self.get(&path, "*/*").await? else { return Ok(None) };
        if digest_of(&blob) != digest {
            return Err(Failure(format!("the registry's blob is not {digest}")));
        }
        Ok(Some(blob))
    }

    /// The body of an answer; none if there is no such thing. Who is asked to log in does so once.
    async fn get(&mut self, path: &str, accept: &str) -> Result<Option<Bytes>, Failure> {
        for again in [false, true] {
            let mut request =
                Request::get(path).header(ACCEPT, accept).header(USER_AGENT, "fairlead");
            if let Some(authorization) = &self.authorization {
                request = request.header(AUTHORIZATION, authorization);
            }
            let request = request.body(Full::default()).map_err(|e| Failure(e.to_string()))?;
            let wrong = |why: String| Failure(format!("the registry, asked for {path}: {why}"));
            let exchange = async {
                let (response, connection) = self.origin.send(request).await?;
                let (head, status) = (response.headers().clone(), response.status());
                let body = read(response, LARGEST).await?;
                self.origin.keep(connection);
                Ok::<_, crate::cli::http::HttpError>((status, head, body))
            };
            let answer = timeout(TIME, exchange).await;
            let answer = answer.map_err(|_| wrong("no answer in time".to_owned()))?;
            let (status, head, body) = answer.map_err(|error| wrong(error.to_string()))?;
            match status {
                StatusCode::OK => return Ok(Some(body.into())),
                StatusCode::NOT_FOUND => return Ok(None),
                StatusCode::UNAUTHORIZED if !again => {
                    let asked = head.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
                    self.log_in(asked.unwrap_or_default()).await?;
                }
                status if status.is_redirection() => {
                    let to = head.get(LOCATION).and_then(|value| value.to_str().ok());
                    return elsewhere(to.unwrap_or_default()).await.map(Some);
                }
                status => return Err(wrong(format!("it answers {status}"))),
            }
        }
        Err(Failure("the registry does not let us in; are the credentials right?".to_owned()))
    }

    /// Does what a registry asks of who is not logged in.
    async fn log_in(&mut self, asked: &str) -> Result<(), Failure> {
        let basic = self.credentials.as_ref().map(|credentials| STANDARD.encode(credentials));
        let Some(challenge) = Challenge::parse(asked) else {
            let Some(basic) = basic.filter(|_| asked.to_lowercase().starts_with("basic")) else {
                return Err(Failure(
                    "the registry wants credentials: --credentials FILE".to_owned(),
                ));
            };
            self.authorization = Some(format!("Basic {basic}"));
            return Ok(());
        };
        let url: Uri = challenge
            .realm
            .parse()
            .map_err(|_| Failure("the registry names no place for tokens".to_owned()))?;
        let wrong = |why: String| Failure(format!("{}, asked for a token: {why}", challenge.realm));
        if basic.is_some() && url.scheme_str() != Some("https") {
            return Err(wrong("credentials go over https alone".to_owned()));
        }
        let origin = Origin::of(&url, Trust::Public, TIME).map_err(|e| wrong(e.to_string()))?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("service", &challenge.service)
            .append_pair("scope", &format!("repository:{}:pull", self.repository))
            .finish();
        let mut request = Request::get(format!("{}?{query}", url.path()));
        if let Some(basic) = basic {
            request = request.header(AUTHORIZATION, format!("Basic {basic}"));
        }
        let request = request.body(Full::default()).map_err(|e| wrong(e.to_string()))?;
        let exchange = async {
            let (response, _) = origin.send(request).await?;
            let status = response.status();
            Ok::<_, crate::cli::http::HttpError>((status, read(response, LARGEST).await?))
        };
        let answer =
            timeout(TIME, exchange).await.map_err(|_| wrong("no answer in time".into()))?;
        let (status, body) = answer.map_err(|error| wrong(error.to_string()))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = body["token"].as_str().or(body["access_token"].as_str());
        let token = token.ok_or_else(|| wrong(format!("it answers {status} and no token")))?;
        self.authorization = Some(format!("Bearer {token}"));
        Ok(())
    }
}

/// What a registry keeps elsewhere: fetched over https, without a word of who asks. What comes is held
/// against its digest like everything else.
async fn elsewhere(to: &str) -> Result<Bytes, Failure> {
    let wrong = |why: String| Failure(format!("where the registry keeps its blobs: {why}"));
    let url: Uri = to.parse().map_err(|_| wrong("it does not say where".to_owned()))?;
    if url.scheme_str() != Some("https") {
        return Err(wrong("it is not reached over https".to_owned()));
    }
    let origin = Origin::of(&url, Trust::Public, TIME).map_err(|e| wrong(e.to_string()))?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let (status, body) =
        origin.get(path, None, TIME, LARGEST).await.map_err(|error| wrong(error.to_string()))?;
    if status != StatusCode::OK {
        return Err(wrong(format!("it answers {status}")));
    }
    Ok(body.into())
}

/// `Bearer realm="…",service="…"`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    realm: String,
    service: String,
}

impl Challenge {
    fn parse(header: &str) -> Option<Self> {
        let (scheme, mut rest) = header.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut challenge = Self::default();
        while let Some((name, value)) = rest.split_once("=\"") {
            let (value, after) = value.split_once('"')?;
            match name.trim_matches([',', ' ']) {
                "realm" => value.clone_into(&mut challenge.realm),
                "service" => value.clone_into(&mut challenge.service),
                _ => {}
            }
            rest = after;
        }
        (!challenge.realm.is_empty()).then_some(challenge)
    }
}

fn layers(manifest: Option<&Value>) -> &[Value] {
    let layers = manifest.and_then(|manifest| manifest["layers"].as_array());
    let layers = layers.map_or(&[][..], Vec::as_slice);
    &layers[..layers.len().min(MOST)]
}

fn parse(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|e| Failure(format!("the registry sends no JSON: {e}")))
}

fn digest_of(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A layer of a `.sig` tag as `cosign download signature` prints it.
fn downloaded(payload: &[u8], annotations: &Value) -> Value {
    let text = |key: &str| annotations[key].as_str().unwrap_or_default();
    let certificates = |pem: &str| -> Vec<Value> {
        let body = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
        let body = body.filter_map(|rest| rest.split("-----END CERTIFICATE-----").next());
        body.map(|raw| json!({"Raw": raw.split_whitespace().collect::<String>()})).collect()
    };
    let mut document = json!({
        "Base64Signature": text("dev.cosignproject.cosign/signature"),
        "Payload": STANDARD.encode(payload),
    });
    if let Some(leaf) = certificates(text("dev.sigstore.cosign/certificate")).into_iter().next() {
        document["Cert"] = leaf;
        document["Chain"] = certificates(text("dev.sigstore.cosign/chain")).into();
    }
    if let Ok(bundle) = serde_json::from_str::<Value>(text("dev.sigstore.cosign/bundle")) {
        document["Bundle"] = bundle;
    }
    document
}

#[cfg(test)]
mod tests;
