//! Texts, packages and modules that occur in many records, each kept once and named by a number.
//!
//! Contract: a number stays what it is for as long as the tables live. [`Tables`] are what readers have: a
//! clone costs a pointer for each thousand entries, and is not changed by what is added afterwards.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Entries of one chunk: what is copied at most when something is added after a clone was made.
const CHUNK: usize = 1024;

/// A list that grows at its end; clones share what is full.
#[derive(Clone, Debug)]
struct Chunked<T>(Vec<Arc<Vec<T>>>);

impl<T: Clone> Chunked<T> {
    fn push(&mut self, value: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < CHUNK => Arc::make_mut(last).push(value),
            _ => self.0.push(Arc::new(vec![value])),
        }
    }

    fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.0.get(at / CHUNK)?.get(at % CHUNK)
    }

    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A package in which vulnerabilities were found. Each field is the number of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Package {
    pub(crate) name: u32,
    pub(crate) installed: u32,
    /// The package's URL; zero, the empty text, if it is not known.
    pub(crate) purl: u32,
}

/// A package that was found: the numbers of every name it goes by, and of its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FoundModule {
    pub(crate) names: Box<[u32]>,
    pub(crate) version: u32,
}

/// What readers see. The text of number zero is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    texts: Chunked<Arc<str>>,
    packages: Chunked<Package>,
    modules: Chunked<Arc<FoundModule>>,
}

impl Tables {
    pub(crate) fn text(&self, at: u32) -> &str {
        self.texts.get(at).map_or("", |text| text)
    }

    pub(crate) fn package(&self, at: u32) -> Package {
        self.packages.get(at).copied().unwrap_or(Package { name: 0, installed: 0, purl: 0 })
    }

    pub(crate) fn module(&self, at: u32) -> Option<&FoundModule> {
        self.modules.get(at).map(|module| &**module)
    }
}

/// The tables while they are written.
#[derive(Debug)]
pub(super) struct Interner {
    tables: Tables,
    texts: FxHashMap<Arc<str>, u32>,
    packages: FxHashMap<Package, u32>,
    modules: FxHashMap<Arc<FoundModule>, u32>,
}

impl Default for Interner {
    fn default() -> Self {
        let mut new = Self {
            tables: Tables::default(),
            texts: FxHashMap::default(),
            packages: FxHashMap::default(),
            modules: FxHashMap::default(),
        };
        new.text("");
        new
    }
}

/// A number for what is added next. Four thousand million entries do not fit into memory.
fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Interner {
    pub(super) fn text(&mut self, text: &str) -> u32 {
        if let Some(at) = self.texts.get(text) {
            return *at;
        }
        let (text, at): (Arc<str>, u32) = (text.into(), number(self.tables.texts.len()));
        self.tables.texts.push(Arc::clone(&text));
        self.texts.insert(text, at);
        at
    }

    pub(super) fn package(&mut self, name: &str, installed: &str, purl: &str) -> u32 {
        let package = Package {
            name: self.text(name),
            installed: self.text(installed),
            purl: self.text(purl),
        };
        self.add_package(package)
    }

    fn add_package(&mut self, package: Package) -> u32 {
        let tables = &mut self.tables;
        *self.packages.entry(package).or_insert_with(|| {
            tables.packages.push(package);
            number(tables.packages.len() - 1)
        })
    }

    pub(super) fn module(&mut self, names: &[String], version: &str) -> u32 {
        let names = names.iter().map(|name| self.text(name)).collect();
        let version = self.text(version);
        self.add_module(FoundModule { names, version })
    }

    fn add_module(&mut self, module: FoundModule) -> u32 {
        if let Some(at) = self.modules.get(&module) {
            return *at;
        }
        let (module, at) = (Arc::new(module), number(self.tables.modules.len()));
        self.tables.modules.push(Arc::clone(&module));
        self.modules.insert(module, at);
        at
    }

    /// Takes over an entry of other tables.
    pub(super) fn text_of(&mut self, of: &Tables, at: u32) -> u32 {
        self.text(of.text(at))
    }

    pub(super) fn package_of(&mut self, of: &Tables, at: u32) -> u32 {
        let Package { name, installed, purl } = of.package(at);
        let package = Package {
            name: self.text_of(of, name),
            installed: self.text_of(of, installed),
            purl: self.text_of(of, purl),
        };
        self.add_package(package)
    }

    pub(super) fn module_of(&mut self, of: &Tables, at: u32) -> u32 {
        let Some(FoundModule { names, version }) = of.module(at) else {
            return self.module(&[], "");
        };
        let names = names.iter().map(|name| self.text_of(of, *name)).collect();
        let version = self.text_of(of, *version);
        self.add_module(FoundModule { names, version })
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How many entries there are of all kinds.
    pub(super) fn len(&self) -> usize {
        self.tables.texts.len() + self.tables.packages.len() + self.tables.modules.len()
    }
}
