//! Notices when the machine itself has no time for us: what is late then says nothing of Fairlead.
//!
//! Two things are the whole machine's, whatever is done to the cluster: the processors, and the kernel's lock for
//! links, which is one for the network namespaces of everybody. Both are tried from outside of the cluster all the
//! time. Such windows excuse what is late; too much of them makes a run void.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use kernel::netlink::{Change, LinkRef, Mac, Veth, VethPeer};
use kernel::netns::Namespace;

use super::scope::{Ms, Part, now};
use super::{EVERY, Run};

/// A thread that sleeps so much longer than it asked for had no time.
const STARVED: Ms = 2500;
/// A pair of links that takes so long to make and to take down, which is some twenty milliseconds of an idle
/// kernel's, waited for somebody else. An operation of an agent has up to ten such steps before it is late.
const WAITED: Ms = 1000;
/// Between two such pairs: often enough to see every wait, seldom enough to cause none.
const LINKS_EVERY: Duration = Duration::from_secs(1);

/// A moment's work that should take no time, judged by how long it took.
fn judge(run: &Run<'_>, what: &str, from: Ms, most: Ms) {
    let until = now();
    let took = until.saturating_sub(from);
    if took <= most {
        return;
    }
    let mut scope = run.scope.lock();
    let window = scope.open(&[Part::Machine], from);
    scope.close(window, until + most);
    drop(scope);
    run.tell(format!("{what} for {took} ms"));
}

/// Whether there is a processor for a thread that wants to run.
pub(super) fn processors(run: &Run<'_>) {
    while !run.is_over() {
        let from = now();
        std::thread::sleep(EVERY);
        judge(run, "the machine had no time", from, STARVED);
    }
}

/// Whether the kernel makes links, in a namespace that has nothing to do with the cluster's.
pub(super) fn links(run: &Run<'_>) {
    let namespace = match Namespace::create() {
        Ok(namespace) => namespace,
        Err(why) => return unknown(run, &why),
    };
    while !run.is_over() {
        let from = now();
        let made = make_and_delete_links(&namespace);
        judge(run, "the kernel's lock for links was held", from, WAITED);
        // Whoever waits long enough is told that there was no answer.
        if let Err(why) = made
            && now().saturating_sub(from) <= WAITED
        {
            return unknown(run, &why);
        }
        std::thread::sleep(LINKS_EVERY);
    }
}

fn unknown(run: &Run<'_>, why: &io::Error) {
    run.broken("alarms", Some(format!("whether the kernel makes links is not known: {why}")));
}

fn make_and_delete_links(namespace: &Namespace) -> io::Result<()> {
    let mac = |last| Mac([2, 0, 0, 0, 0, last]);
    let peer = VethPeer { name: "beat1", mac: mac(1), namespace: namespace.as_fd() };
    let pair = Veth { name: "beat0", mac: mac(0), mtu: 1500, group: None, peer };
    let changes = [Change::Veth(pair), Change::Delete(LinkRef::Name("beat0"))];
    namespace.netlink()?.apply(&changes).map_err(io::Error::other)
}
