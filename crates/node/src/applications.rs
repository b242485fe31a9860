//! `Applications`: what the first bytes of connections tell of conversations.
//!
//! ```text
//! kernel: a rule, of each conversation once in ten minutes ─► thread: PacketLog ─► first_bytes ─► queue ─► Watcher
//! ```
//!
//! A rule in a table of its own looks at the first six packets of a connection, for the first one that carries
//! something, whoever sends it: of TCP that is the fourth, where none is sent again. Later packets pay for one
//! comparison. The table belongs to this process and ends with it, however it ends; no packet's fate depends on
//! it, and the table that enforces policies knows nothing of it.
//!
//! Contract:
//! - The kernel waits for nobody, and neither does the thread: what finds no room is counted, and such a
//!   conversation is looked at again ten minutes later.
//! - A conversation is named by its own bytes: no client names what another one says to the same server.
//! - Bytes that nobody knows are told as such: a name that was right before does not outlive them.
//! - Of the bytes nothing is kept: the name alone leaves this module.

pub(crate) mod first_bytes;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kernel::nftables::expression::{Comparison, Header, Meta, Register, Tracked};
use kernel::nftables::{
    Batch, Chain, Expression, Field, Hook, Nftables, Rule, Set, TABLE_OWNER, Verdict,
};
use kernel::packet_log::{Logged, PacketLog};
use stallproof::{Tasks, TrackedMutex, sentence};
use tokio::sync::oneshot;
use tracing::{error, info, warn};
use traffic::conversations::Protocol;

use crate::metrics::Metrics;
use crate::sensor::ConversationKey;
use first_bytes::Sender;

/// The table that holds the rule; nobody else has one of this name.
const TABLE: &str = "fairlead-applications";
/// The group of the kernel's packet log, beside that of denials.
const LOG_GROUP: u16 = 7682;
/// Behind what filters and what translates to the address that really serves, before what translates back.
const PRIORITY: i32 = 50;
/// What the log calls a packet by that goes with a connection's first one, and one that goes against it.
const CLIENT: &str = "client";
const SERVER: &str = "server";
/// Of so many packets of a connection the first is looked for that carries something: the handshake's three, that
/// one, and two that were sent again.
const PACKETS: u64 = 6;
/// How long a conversation is not looked at again, in milliseconds.
const PAUSE: u64 = 10 * 60 * 1000;
/// How many packets of clients, and as many of servers, are told of in a second, and at once, of each address
/// family.
const RATE: (u64, u32) = (50, 100);
/// As many as there can be at that rate: the set is never full, and takes some ten megabytes of the kernel at
/// worst.
const MOST: u32 = 1 << 16;
/// What is copied of a packet: the longest headers, and enough behind them to know a protocol by.
const COPIED: u32 = 256;
/// How many names wait to be taken. They come at four times `RATE`, and are taken several times a second.
const WAITING: usize = 4096;
/// How long the thread waits for packets before it looks whether to end.
const WAKE: Duration = Duration::from_millis(200);
/// How soon it is tried again to have the kernel tell.
const AGAIN: Duration = Duration::from_secs(10);

/// What the first bytes of a connection told of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) conversation: ConversationKey,
    /// None if nobody knows these bytes.
    pub(crate) application: Option<&'static str>,
}

/// Where names wait. Clones are the same queue.
#[derive(Clone, Debug)]
pub(crate) struct Applications {
    /// The thread writes, the watcher takes.
    queue: Arc<TrackedMutex<Vec<Named>>>,
    metrics: Metrics,
}

impl Applications {
    /// Has the kernel of the calling thread's network namespace tell, and listens on a thread of its own until
    /// the tasks stop. Where the kernel refuses, that is logged and tried again.
    pub(crate) fn follow(metrics: Metrics, tasks: &Tasks) -> io::Result<Self> {
        let queue = Arc::new(TrackedMutex::new("applications", Vec::new()));
        let applications = Self { queue, metrics };
        let (own, stop) = (applications.clone(), tasks.stopping());
        let (ended, end) = oneshot::channel::<()>();
        thread::Builder::new().name("first-bytes".to_owned()).spawn(move || {
            let mut failing = None;
            while !stop.is_stopped() {
                let error = match Tap::open() {
                    Ok(mut tap) => {
                        if failing.take().is_some() {
                            info!("applications are told by first bytes again");
                        }
                        own.listen(&mut tap, &|| stop.is_stopped())
                    }
                    Err(error) => Some(error),
                };
                if let Some(error) = error {
                    let error = sentence(&error);
                    if failing.as_ref() != Some(&error) {
                        warn!(error, "applications are told by their ports alone");
                        failing = Some(error);
                    }
                    let until = Instant::now() + AGAIN;
                    while Instant::now() < until && !stop.is_stopped() {
                        thread::sleep(WAKE);
                    }
                }
            }
            let _ = ended.send(());
        })?;
        tasks.spawn("first-bytes", async move {
            if end.await.is_err() {
                error!("applications are told by their ports alone: the thread has panicked");
            }
        });
        Ok(applications)
    }

    /// What has come since this was asked last.
    pub(crate) fn take(&self) -> Vec<Named> {
        std::mem::take(&mut *self.queue.lock())
    }

    /// Listens until it is over, or until the log cannot be read.
    fn listen(&self, tap: &mut Tap, over: &dyn Fn() -> bool) -> Option<io::Error> {
        while !over() {
            match tap.log.read(WAKE, |logged| self.add(&logged)) {
                Ok(lost) => drop(self.metrics.application_overruns.inc_by(u64::from(lost))),
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn add(&self, logged: &Logged) {
        let Some(named) = named(logged) else { return };
        match named.application {
            Some(_) => self.metrics.applications_named.inc(),
            None => self.metrics.applications_unknown.inc(),
        };
        let mut queue = self.queue.lock();
        if queue.len() < WAITING {
            queue.push(named);
        } else {
            drop(queue);
            self.metrics.applications_dropped.inc();
        }
    }
}

/// What a packet tells of its conversation; none if it carries nothing, or no rule of ours says who sent it.
fn named(logged: &Logged) -> Option<Named> {
    let protocol = Protocol(logged.protocol);
    let source = (logged.source.to_canonical(), logged.source_port);
    let destination = (logged.destination.to_canonical(), logged.destination_port);
    let (client, server) = match logged.prefix.as_str() {
        CLIENT => (source, destination),
        SERVER => (destination, source),
        _ => return None,
    };
    if logged.carried.is_empty() {
        return None;
    }
    let conversation = ConversationKey::between(protocol, client, server);
    let is_server = source == (conversation.server, conversation.port);
    let sender = if is_server { Sender::Server } else { Sender::Client };
    let application = first_bytes::application(protocol, sender, &logged.carried);
    Some(Named { conversation, application })
}

/// The rule in the kernel, and the log that it writes to.
struct Tap {
    log: PacketLog,
    /// The table is gone when this is.
    _owner: Nftables,
}

impl Tap {
    fn open() -> io::Result<Self> {
        let log = PacketLog::open_at_once(LOG_GROUP, COPIED)?;
        let mut owner = Nftables::open()?;
        owner.commit(&table(), None)?;
        Ok(Self { log, _owner: owner })
    }
}

fn table() -> Batch {
    const LOOK: &str = "look";
    let mut batch = Batch::new(TABLE);
    batch.add_table(TABLE_OWNER);
    let chain = |name: &str, hook| Chain { name: name.to_owned(), hook, drops: false };
    batch.add_chain(&chain(LOOK, None));
    for family in &FAMILIES {
        batch.add_set(&family.set());
        batch.add_rule(LOOK, &family.look(CLIENT));
        batch.add_rule(LOOK, &family.look(SERVER));
    }
    for (name, hook) in
        [("forward", Hook::Forward), ("input", Hook::Input), ("output", Hook::Output)]
    {
        batch.add_chain(&chain(name, Some((hook, PRIORITY))));
        batch.add_rule(name, &begins(LOOK));
    }
    batch
}

/// Goes on with the first packets of a connection that the kernel has counted from its beginning.
fn begins(look: &str) -> Rule {
    let register = Register::FIRST;
    let compare = |is, than: u64| {
        let value = than.to_be_bytes().to_vec();
        Expression::Compare { register, is, value }
    };
    let expressions = vec![
        Expression::Tracked { fact: Tracked::Packets, into: register },
        Expression::Comparable { register, length: 8 },
        compare(Comparison::AtMost, PACKETS),
        compare(Comparison::NotEqual, 0),
        Expression::Verdict(Verdict::Jump(look.to_owned())),
    ];
    Rule { expressions, ..Rule::default() }
}

/// What differs between IPv4 and IPv6.
struct Family {
    set: &'static str,
    number: u8,
    field: Field,
    /// Where a header has the source and the destination, and how long they are.
    source: u32,
    destination: u32,
    length: u32,
}

const FAMILIES: [Family; 2] = [
    Family {
        set: "looked4",
        number: 2,
        field: Field::Ipv4,
        source: 12,
        destination: 16,
        length: 4,
    },
    Family {
        set: "looked6",
        number: 10,
        field: Field::Ipv6,
        source: 8,
        destination: 24,
        length: 16,
    },
];

impl Family {
    /// The conversations that were looked at.
    fn set(&self) -> Set {
        let key = [self.field, self.field, Field::Protocol, Field::Port];
        Set { timeouts: true, filled_by_rules: Some(MOST), ..Set::hash(self.set, &key) }
    }

    /// The rule that tells of what the client or the server sends in a conversation that was not looked at.
    fn look(&self, sender: &str) -> Rule {
        let (first, set) = (Register::FIRST, || self.set.to_owned());
        let equal = |value| Expression::Compare {
            register: first,
            is: Comparison::Equal,
            value: vec![value],
        };
        let is_client = sender == CLIENT;
        let (client, server, port) = match is_client {
            true => (self.source, self.destination, 2),
            false => (self.destination, self.source, 0),
        };
        let load = |header, offset, length, into| Expression::Payload {
            header,
            offset,
            length,
            into: Register(into),
        };
        // An address takes so many registers.
        let wide = (self.length / 4) as u8;
        let expressions = vec![
            Expression::Meta { fact: Meta::Family, into: first },
            equal(self.number),
            Expression::Tracked { fact: Tracked::Direction, into: first },
            equal(u8::from(!is_client)),
            // A packet that carries nothing ends the rule here.
            load(Header::Carried, 0, 1, 0),
            load(Header::Network, client, self.length, 0),
            load(Header::Network, server, self.length, wide),
            Expression::Meta { fact: Meta::Protocol, into: Register(2 * wide) },
            load(Header::Transport, port, 2, 2 * wide + 1),
            Expression::Lookup { set: set(), key: first, absent: true },
            // Before it is remembered: what is too much now is looked at when it comes again.
            Expression::Limit { per_second: RATE.0, burst: RATE.1 },
            Expression::Remember { set: set(), key: first, timeout: PAUSE },
            Expression::Log { group: LOG_GROUP, prefix: sender.to_owned(), length: COPIED },
        ];
        Rule { expressions, ..Rule::default() }
    }
}

#[cfg(test)]
mod tests;
