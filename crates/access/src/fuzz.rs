//! The fuzz targets of this crate ([docs/endurance.md](../../../docs/endurance.md)): each stands beside its
//! parser.

pub use crate::kube_token::fuzz::kube_token;
pub use crate::kubernetes::fuzz::kube_path;
pub use crate::oidc::fuzz::{id_token, key_set};
pub use crate::session::rotation::fuzz::session_token;
