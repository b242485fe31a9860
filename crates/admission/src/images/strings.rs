//! Texts that occur in many records, each kept once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Strings {
    texts: Vec<Arc<str>>,
    at: FxHashMap<Arc<str>, u32>,
}

impl Strings {
    pub(super) fn add(&mut self, text: &str) -> u32 {
        if let Some(at) = self.at.get(text) {
            return *at;
        }
        let text: Arc<str> = text.into();
        // Four thousand million different texts do not fit into memory.
        let at = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.clone());
        self.at.insert(text, at);
        at
    }

    pub(super) fn text(&self, at: u32) -> &str {
        self.texts.get(at as usize).map_or("", |text| text)
    }
}
