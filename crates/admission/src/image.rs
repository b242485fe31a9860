//! Images as containers name them, and the items of the `image` and `imageRegistry` criteria.

use std::sync::Arc;

use super::glob::Glob;

/// An image without a registry belongs to all of them at once.
pub(super) const DEFAULT_REGISTRIES: [&str; 4] =
    ["docker.io", "index.docker.io", "registry.hub.docker.com", "registry-1.docker.io"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// As written.
    pub(super) text: String,
    /// Every host that it may come from.
    pub(super) hosts: Arc<[String]>,
    pub(super) repository: String,
    /// `latest` where neither a tag nor a digest is written.
    pub(super) tag: Option<String>,
    pub(super) digest: Option<String>,
    /// `repository:tag`, `repository@digest`, `repository:tag@digest`, as far as there are any.
    versions: Vec<String>,
    /// That of a sidecar that a mesh injects.
    pub(super) sidecar: bool,
}

impl Image {
    pub(super) fn parse(text: &str, defaults: &Arc<[String]>) -> Self {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if is_host(first) => (Some(first.to_lowercase()), rest),
            _ => (None, rest),
        };
        let (name, digest) = match rest.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (rest, None),
        };
        let last = name.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match name[last..].find(':') {
            Some(at) => (&name[..last + at], Some(&name[last + at + 1..])),
            None => (name, digest.is_none().then_some("latest")),
        };
        let hub = registry.as_deref().is_none_or(|registry| registry == "docker.io");
        let is_default =
            hub || registry.as_ref().is_some_and(|registry| defaults.contains(registry));
        let repository = if is_default && !name.contains('/') {
            format!("library/{name}")
        } else {
            name.to_owned()
        };
        let sidecar = matches!(
            (registry.as_deref().unwrap_or("docker.io"), repository.as_str()),
            ("docker.io", "istio/proxyv2")
                | ("gcr.io", "istio-release/proxyv2" | "linkerd-io/proxy")
        );
        let mut versions = Vec::with_capacity(3);
        if let Some(tag) = tag {
            versions.push(format!("{repository}:{tag}"));
        }
        if let Some(digest) = digest {
            versions.push(format!("{repository}@{digest}"));
        }
        if let (Some(tag), Some(digest)) = (tag, digest) {
            versions.push(format!("{repository}:{tag}@{digest}"));
        }
        let hosts = match registry {
            Some(registry) if !hub => Arc::from([registry]),
            _ => defaults.clone(),
        };
        let (tag, digest) = (tag.map(str::to_owned), digest.map(str::to_owned));
        Self { text: text.to_owned(), hosts, repository, tag, digest, versions, sidecar }
    }
}

pub(super) fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

/// An item of `image`. Registry and name are matched apart: a repository that is named like a
/// trusted host is not that host.
#[derive(Clone, Debug)]
pub(super) struct ImageItem {
    registry: Option<Glob>,
    /// None is a registry alone, which no image is.
    name: Option<(Glob, Against)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    Repository,
    Version,
}

impl ImageItem {
    pub(super) fn new(item: &str) -> Self {
        let item = item.strip_prefix("https://").unwrap_or(item);
        let (registry, name) = match item.split_once('/') {
            Some((first, rest)) if is_host(first) => (Some(first), rest),
            Some(_) => (None, item),
            None => {
                let host = item.split(':').next().unwrap_or_default();
                let alone = host.contains('.') || host == "localhost";
                if alone { (Some(item), "") } else { (None, item) }
            }
        };
        let registry = registry.map(|registry| Glob::new(&registry.to_lowercase()));
        let mut name = name;
        let mut against = Against::Repository;
        if let Some(at) = name.rfind(':').filter(|at| *at != 0) {
            if at + 1 == name.len() {
                name = &name[..at];
            } else {
                against = Against::Version;
            }
        }
        let end = name.find([':', '@']).unwrap_or(name.len());
        let text = format!("{}{}", name[..end].to_lowercase(), &name[end..]);
        Self { registry, name: (!text.is_empty()).then(|| (Glob::new(&text), against)) }
    }

    pub(super) fn matches(&self, image: &Image) -> bool {
        let host = |glob: &Glob| image.hosts.iter().any(|host| glob.matches(host));
        let Some((name, against)) = &self.name else { return false };
        self.registry.as_ref().is_none_or(host)
            && match against {
                Against::Repository => name.matches(&image.repository),
                Against::Version => image.versions.iter().any(|version| name.matches(version)),
            }
    }
}

/// The globs of an item of `imageRegistry`.
pub(super) fn registry_item(item: &str) -> Vec<Glob> {
    if matches!(item, "dockerhub" | "docker.io") {
        return DEFAULT_REGISTRIES[1..].iter().map(|host| Glob::new(host)).collect();
    }
    let item = item.strip_prefix("https://").unwrap_or(item);
    let host = item.split('/').next().unwrap_or_default();
    vec![Glob::new(&host.to_lowercase())]
}

#[cfg(test)]
mod tests;
