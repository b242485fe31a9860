use super::{Drive, Ran, Stage};

pub(super) fn play(_: &Stage<'_>, _: &mut Drive<'_>) -> Ran {
    Err("not built yet".into())
}
