//! Has marked packets delivered to this machine's own sockets, whatever their destination.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Error, Netlink};

/// The number of the loopback device in every namespace.
const LOOPBACK: u32 = 1;
/// Before the rules that everybody has, and before those that programs like to make.
const PRIORITY: u32 = 90;

impl Netlink {
    /// Has packets whose mark has all bits of `mark` routed by `table`, which delivers everything to this
    /// machine: a rule and a route for each family. What is there already stays.
    pub fn deliver_marked(&mut self, mark: u32, table: u32) -> Result<(), Error> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let requests = [
                (Message::NewRoute(route(family, table)), NLM_F_CREATE | NLM_F_REPLACE),
                (Message::NewRule(rule(family, mark, table)), NLM_F_CREATE | NLM_F_EXCL),
            ];
            for request in requests {
                match self.exchange(vec![request], false) {
                    Ok(_) => {}
                    Err(failure) if failure.source.raw_os_error() == Some(libc::EEXIST) => {}
                    Err(failure) => {
                        let what = "route marked packets to this machine itself";
                        return Err(Error::new(what, failure.source));
                    }
                }
            }
        }
        Ok(())
    }
}

fn route(family: AddressFamily, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message.header.protocol = 4.into();
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(LOOPBACK)];
    message
}

fn rule(family: AddressFamily, mark: u32, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(mark),
        RuleAttribute::Table(table),
        RuleAttribute::Priority(PRIORITY),
    ];
    message
}
