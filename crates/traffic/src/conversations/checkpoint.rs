//! `Checkpoint`: what a controller knows again after a restart.
//!
//! Contract:
//! - A file is whole or refused: it ends in the SHA-256 of all before it, and is put in the place of
//!   the last one in one step. Whoever refuses it starts empty, and the agents send what they have.
//! - Everything that exactly-once needs is in it: the seed, the marks, how far each agent's batches
//!   were counted. Take `progress` first, then save the shards: a shard may know more than was
//!   acknowledged, never less.
//! - It does not depend on how many shards there were.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::codec::{Reader, Torn, Writer};
use super::judge::Verdict;
use super::reporter::Reporter;
use super::table::{FoldedTotals, Kind, NONE, Row};
use super::view::Readers;
use super::watermarks::Watermarks;
use super::{End, Endpoint, Limits, Router, Shard, shards};

const MAGIC: &[u8; 8] = b"FLDCONV\n";
const VERSION: u64 = 1;
const SUM: usize = 32;

#[derive(Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Of the router.
    pub seed: [u64; 2],
    pub progress: Vec<Progress>,
    /// What each [`Shard::save`] gave.
    pub shards: Vec<Vec<u8>>,
    /// What was learned, as [`Learned::save`](crate::rules::Learned::save) gave it.
    pub learned: Vec<u8>,
    /// As [`Violations::save`](crate::violations::Violations::save) gave them.
    pub violations: Vec<u8>,
}

/// How far an agent's batches were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub agent: Arc<str>,
    pub incarnation: u64,
    pub through: u64,
}

/// Why a checkpoint was not taken up.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint cannot be read")]
    Unreadable(#[source] io::Error),
    #[error("it is no checkpoint of conversations")]
    Foreign,
    #[error("the checkpoint is of version {0}, and this program reads version {VERSION}")]
    Version(u64),
    #[error("the checkpoint is damaged: its sum does not match, it was cut short or changed")]
    Damaged,
    #[error("the checkpoint is damaged")]
    Torn(#[from] Torn),
}

impl Checkpoint {
    /// Of what is counted by way of `router`.
    pub fn of(
        router: Router,
        progress: Vec<Progress>,
        shards: Vec<Vec<u8>>,
        learned: Vec<u8>,
        violations: Vec<u8>,
    ) -> Self {
        Self { seed: router.seed(), progress, shards, learned, violations }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).expect("memory takes what is written to it");
        bytes
    }

    /// Piece by piece: a million conversations are not copied once more.
    fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        let mut out = Writer(MAGIC.to_vec());
        out.number(VERSION);
        self.seed.iter().for_each(|half| out.fixed(*half));
        out.count(self.progress.len());
        for Progress { agent, incarnation, through } in &self.progress {
            out.text(agent);
            out.number(*incarnation);
            out.number(*through);
        }
        out.count(self.shards.len());
        let mut sum = Sha256::new();
        let mut put = |piece: &[u8]| {
            sum.update(piece);
            to.write_all(piece)
        };
        put(&out.0)?;
        for part in self.shards.iter().chain([&self.learned, &self.violations]) {
            let mut length = Writer::default();
            length.count(part.len());
            put(&length.0)?;
            put(part)?;
        }
        to.write_all(&sum.finalize())
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let mut from = Reader(bytes.strip_prefix(MAGIC).ok_or(CheckpointError::Foreign)?);
        let version = from.number()?;
        if version != VERSION {
            return Err(CheckpointError::Version(version));
        }
        let (body, sum) = bytes.split_last_chunk::<SUM>().ok_or(CheckpointError::Damaged)?;
        if *Sha256::digest(body) != *sum {
            return Err(CheckpointError::Damaged);
        }
        from.0 = from.0.strip_suffix(sum).ok_or(CheckpointError::Damaged)?;
        let seed = [from.fixed()?, from.fixed()?];
        let count = from.count()?;
        let progress = (0..count).map(|_| {
            let (agent, incarnation) = (from.text()?.into(), from.number()?);
            Ok(Progress { agent, incarnation, through: from.number()? })
        });
        let progress = progress.collect::<Result<_, Torn>>()?;
        let count = from.count()?;
        let shards = (0..count).map(|_| from.bytes().map(<[u8]>::to_vec));
        let shards = shards.collect::<Result<_, Torn>>()?;
        let (learned, violations) = (from.bytes()?.to_vec(), from.bytes()?.to_vec());
        Ok(Self { seed, progress, shards, learned, violations })
    }

    /// In the place of what was at `path`, durably. Only the owner may read it: with the seed, an
    /// agent could make two totals look like one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("draft");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        self.write_to(&mut file)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }

    /// None if there is no file.
    pub fn read(path: &Path) -> Result<Option<Self>, CheckpointError> {
        match fs::read(path) {
            Ok(bytes) => Self::from_bytes(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CheckpointError::Unreadable(error)),
        }
    }

    /// The shards as they were, in `count` of them.
    pub fn restore(
        &self,
        count: usize,
        limits: Limits,
    ) -> Result<(Router, Vec<Shard>, Readers), CheckpointError> {
        let router = Router::new(self.seed, count);
        let (mut shards, readers) = shards(router, limits);
        for section in &self.shards {
            load(&mut Reader(section), router, &mut shards)?;
        }
        shards.iter_mut().for_each(Shard::publish);
        Ok((router, shards, readers))
    }
}

/// Without the seed.
impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("agents", &self.progress.len())
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// Its part of a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.watermarks().save(&mut out);
        let table = self.table.freeze();
        // Places that are empty are written as no end, so that pairs can name ends by their place.
        out.count(table.ends.iter().count());
        for place in table.ends.iter() {
            match &place.end {
                None => out.byte(0),
                Some(end) => save_end(end, &mut out),
            }
        }
        for names in [&table.applications, &table.rules] {
            out.count(names.len());
            names.iter().for_each(|name| out.text(name));
        }
        out.count(table.pairs.iter().filter(|pair| pair.client != NONE).count());
        for pair in table.pairs.iter().filter(|pair| pair.client != NONE) {
            out.number(pair.client.into());
            out.number(pair.server.into());
            out.number(pair.rows.into());
            for row in table.rows_of(pair) {
                save_row(row, &mut out);
            }
        }
        out.count(table.folded.len());
        for ((client, server), folded) in &table.folded {
            out.text(client);
            out.text(server);
            out.totals(folded.totals);
            out.number(folded.pairs);
            out.number(folded.last.into());
        }
        out.0
    }
}

fn load(from: &mut Reader<'_>, router: Router, shards: &mut [Shard]) -> Result<(), Torn> {
    for agent in Watermarks::load(from)? {
        for shard in &mut *shards {
            let number = shard.number();
            shard.restore_watermarks(&agent, |print| router.shard(print) == number);
        }
    }
    let count = from.count()?;
    let ends: Vec<Option<End>> = (0..count).map(|_| load_end(from)).collect::<Result<_, Torn>>()?;
    let mut names = || -> Result<Vec<Arc<str>>, Torn> {
        let count = from.count()?;
        (0..count).map(|_| from.text().map(Arc::from)).collect()
    };
    let (applications, rules) = (names()?, names()?);
    let name = |names: &[Arc<str>], number: u16| match number {
        0 => Ok(None),
        n => names.get(usize::from(n) - 1).cloned().map(Some).ok_or(Torn),
    };
    for _ in 0..from.count()? {
        let mut end = || ends.get(from.small::<usize>()?).and_then(Option::as_ref).ok_or(Torn);
        let (client, server) = (end()?, end()?);
        let shard = &mut shards[router.shard_of(client, server)];
        for _ in 0..from.count()? {
            let row = load_row(from)?;
            let application = name(&applications, row.application)?;
            let rule = name(&rules, row.rule)?;
            shard.table.restore_row(client, server, application.as_ref(), rule.as_ref(), row);
        }
    }
    for _ in 0..from.count()? {
        let realms = (from.text()?.into(), from.text()?.into());
        let (totals, pairs, last) = (from.totals()?, from.number()?, from.small()?);
        shards[0].table.add_folded(realms, FoldedTotals { totals, pairs, last });
    }
    if from.0.is_empty() { Ok(()) } else { Err(Torn) }
}

fn save_row(row: &Row, out: &mut Writer) {
    out.byte(u8::from(row.kind == Kind::Other));
    out.byte(match row.reporter {
        Reporter::Server => 0,
        Reporter::Client => 1,
        Reporter::Transit => 2,
    });
    out.byte(row.verdict.number());
    out.byte(row.protocol);
    for number in [row.port, row.application, row.rule] {
        out.number(number.into());
    }
    out.number(row.first.into());
    out.number(row.last.into());
    out.totals(row.totals);
}

fn load_row(from: &mut Reader<'_>) -> Result<Row, Torn> {
    Ok(Row {
        next: NONE,
        kind: if from.byte()? == 0 { Kind::Conversation } else { Kind::Other },
        reporter: match from.byte()? {
            0 => Reporter::Server,
            1 => Reporter::Client,
            2 => Reporter::Transit,
            _ => return Err(Torn),
        },
        verdict: Verdict::from_number(from.byte()?).ok_or(Torn)?,
        protocol: from.byte()?,
        port: from.small()?,
        application: from.small()?,
        rule: from.small()?,
        first: from.small()?,
        last: from.small()?,
        totals: from.totals()?,
    })
}

pub(crate) fn save_end(end: &End, out: &mut Writer) {
    match &*end.endpoint {
        Endpoint::Workload { namespace, name, owner, node } => {
            out.byte(1);
            [namespace, name, owner, node].into_iter().for_each(|text| out.text(text));
        }
        Endpoint::Host { name } => {
            out.byte(2);
            out.text(name);
        }
        Endpoint::Service { namespace, name } => {
            out.byte(3);
            [namespace, name].into_iter().for_each(|text| out.text(text));
        }
        Endpoint::Ingress { namespace, name } => {
            out.byte(4);
            [namespace, name].into_iter().for_each(|text| out.text(text));
        }
        Endpoint::External { name: Some(name) } => {
            out.byte(5);
            out.text(name);
        }
        Endpoint::External { name: None } => out.byte(6),
        Endpoint::Unmanaged => out.byte(7),
    }
    out.address(end.address);
}

pub(crate) fn load_end(from: &mut Reader<'_>) -> Result<Option<End>, Torn> {
    let tag = from.byte()?;
    let mut text = || from.text().map(Arc::from);
    let endpoint = match tag {
        0 => return Ok(None),
        1 => {
            Endpoint::Workload { namespace: text()?, name: text()?, owner: text()?, node: text()? }
        }
        2 => Endpoint::Host { name: text()? },
        3 => Endpoint::Service { namespace: text()?, name: text()? },
        4 => Endpoint::Ingress { namespace: text()?, name: text()? },
        5 => Endpoint::External { name: Some(text()?) },
        6 => Endpoint::External { name: None },
        7 => Endpoint::Unmanaged,
        _ => return Err(Torn),
    };
    Ok(Some(End { endpoint: Arc::new(endpoint), address: from.address()? }))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
