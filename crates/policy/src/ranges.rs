//! `Ranges`: sets of addresses as disjoint intervals.
//!
//! Contract: ranges are sorted, disjoint and never adjacent, so that two sets of the same addresses are
//! equal. Both families may be in one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranges(Vec<(IpAddr, IpAddr)>);

impl Ranges {
    /// All addresses of both families.
    pub fn everything() -> Self {
        let v4 = (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into());
        let v6 = (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into());
        Self(vec![v4, v6])
    }

    pub fn of(networks: &[IpNet]) -> Self {
        let ranges = networks.iter().map(|it| (it.network(), it.broadcast()));
        Self::merged(ranges.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
        self.0.iter().copied()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after.checked_sub(1).is_some_and(|place| address <= self.0[place].1)
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::merged(self.0.iter().chain(&other.0).copied().collect())
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for &(mut first, last) in &self.0 {
            let mut whole = false;
            let start = first;
            for &(from, to) in other.0.iter().filter(|(from, to)| *to >= start && *from <= last) {
                if from > first {
                    left.extend(before(from).map(|end| (first, end)));
                }
                match after(to) {
                    Some(next) if next <= last => first = next,
                    _ => {
                        whole = true;
                        break;
                    }
                }
            }
            if !whole {
                left.push((first, last));
            }
        }
        Self::merged(left)
    }

    fn merged(mut ranges: Vec<(IpAddr, IpAddr)>) -> Self {
        ranges.sort();
        let mut merged: Vec<(IpAddr, IpAddr)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end || after(*end) == Some(first) => {
                    *end = last.max(*end);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            write!(f, "{}{first}-{last}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The next address of the family.
fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(it) => u32::from(it).checked_add(1).map(|it| Ipv4Addr::from(it).into()),
        IpAddr::V6(it) => u128::from(it).checked_add(1).map(|it| Ipv6Addr::from(it).into()),
    }
}

fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(it) => u32::from(it).checked_sub(1).map(|it| Ipv4Addr::from(it).into()),
        IpAddr::V6(it) => u128::from(it).checked_sub(1).map(|it| Ipv6Addr::from(it).into()),
    }
}

#[cfg(test)]
mod tests;
