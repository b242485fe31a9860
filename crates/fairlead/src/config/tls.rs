//! Where a listener's certificate comes from.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsSource {
    /// A certificate and a key on disk, where they are set.
    Files,
    /// A certificate of our own making.
    Auto,
}

impl TlsSource {
    /// Completes "expected …".
    pub(crate) const ALLOWED: &'static str = "files or auto";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "files" => Some(Self::Files),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Auto => "auto",
        }
    }
}
