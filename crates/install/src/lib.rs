//! The objects of an installation, from the one source of truth: the Helm chart in `deploy/chart`.
//!
//! ```text
//! values.yaml + files + --set ──► Values ──► schema ──► templates ──► YAML ──► objects, in order
//! ```
//!
//! - The chart is embedded: what `fairlead install` applies is what the same version's chart holds.
//! - The templates are in Helm's language, of which `template` knows a strict subset. What is outside
//!   of it is an error with file and line, never something else than Helm would make of it; a test
//!   renders the chart with Go's `text/template` as well and compares the objects.
//! - Rendering talks to no cluster. What does is beside it, on plain objects: [`check`] before, [`rollout`]
//!   for installing and upgrading, [`status`], [`remove`]; all through [`cluster`], each call with a
//!   deadline.
//!
//! ```
//! use install::chart::{Chart, Release};
//! use install::values::Values;
//!
//! let chart = Chart::embedded();
//! let mut values = Values::default();
//! values.set("components.net=false,controller.replicas=1")?;
//! let rendered = chart.render(&Release::default(), &values)?;
//! assert!(rendered.objects.iter().any(|object| object["kind"] == "Deployment"));
//! # Ok::<(), install::Error>(())
//! ```

pub mod chart;
pub mod check;
pub mod cluster;
pub mod on_nodes;
pub mod ready;
pub mod record;
pub mod remove;
pub mod rollout;
pub mod status;
mod template;
pub mod values;

pub use values::schema::Problem;

/// Why a chart could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template is outside the language, or asks for something that is not there.
    #[error("{file}, line {line}: {message}")]
    Template { file: String, line: usize, message: String },
    /// The chart itself says that these values cannot be installed.
    #[error("{0}")]
    Refused(String),
    /// Values that the schema does not allow; every one of them.
    #[error("the values cannot be used:{}", list(.0))]
    Values(Vec<Problem>),
    /// A `--set` that cannot be read.
    #[error("--set {text}: {message}")]
    Set { text: String, message: String },
    /// A file that is not the YAML (or JSON) it should be.
    #[error("{file}: {message}")]
    Yaml { file: String, message: String },
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
