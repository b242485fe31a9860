//! How networks are written in pools and blocks, for API servers: patterns, and rules in CEL.
//!
//! The rules are cheap by a server's own estimate: every text that is cut is a field of bounded
//! length, or a part of one. (The elements of what `split` gives have no known length: nothing but
//! `int` is done with them.)

macro_rules! octet {
    () => {
        "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    };
}

macro_rules! group {
    () => {
        "[0-9a-fA-F]{1,4}"
    };
}

/// The pattern of an IPv4 network, `10.64.0.0/16`: from `/8` on, the largest that a pool may have.
pub(super) const IPV4: &str =
    concat!("^", octet!(), "(\\.", octet!(), "){3}/([89]|[12][0-9]|3[0-2])$");
pub(super) const LONGEST_IPV4: usize = 18;

/// The pattern of an IPv6 network, `fd00:64::/112`: from `/104` on, the largest that a pool may have. No
/// part is written as an IPv4 address.
pub(super) const IPV6: &str = concat!(
    "^((",
    group!(),
    ":){7}",
    group!(),
    "|(",
    group!(),
    ":){1,7}:|(",
    group!(),
    ":){1,6}:",
    group!(),
    "|(",
    group!(),
    ":){1,5}(:",
    group!(),
    "){1,2}|(",
    group!(),
    ":){1,4}(:",
    group!(),
    "){1,3}|(",
    group!(),
    ":){1,3}(:",
    group!(),
    "){1,4}|(",
    group!(),
    ":){1,2}(:",
    group!(),
    "){1,5}|",
    group!(),
    ":(:",
    group!(),
    "){1,6}|:((:",
    group!(),
    "){1,7}|:))/(10[4-9]|11[0-9]|12[0-8])$"
);
pub(super) const LONGEST_IPV6: usize = 43;

/// Of `ipv4` and `ipv6`, each of which may be missing, one is there.
pub(super) const EITHER: &str = "has(self.ipv4) || has(self.ipv6)";

/// Both networks have as many host bits: 32 - a = 128 - b.
pub(super) const SAME_SIZE: &str = "!has(self.ipv4) || !has(self.ipv6) || int(self.ipv4.substring(self.ipv4.indexOf('/') + 1)) + 96 == int(self.ipv6.substring(self.ipv6.indexOf('/') + 1))";

macro_rules! ipv4_part {
    ($n:literal) => {
        concat!("int(self.ipv4.substring(0, self.ipv4.indexOf('/')).split('.')[", $n, "])")
    };
}

/// The address as a number, by the size of the network: there are no bit operations in CEL.
pub(super) const IPV4_NO_HOST_BITS: &str = concat!(
    "!has(self.ipv4) || (",
    ipv4_part!(0),
    " * 16777216 + ",
    ipv4_part!(1),
    " * 65536 + ",
    ipv4_part!(2),
    " * 256 + ",
    ipv4_part!(3),
    ") % [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576, 2097152, 4194304, 8388608, 16777216][32 - int(self.ipv4.substring(self.ipv4.indexOf('/') + 1))] == 0"
);

/// By the last digits that each prefix leaves; a colon before a digit, or at the end, is zeros.
pub(super) const IPV6_NO_HOST_BITS: &str = "!has(self.ipv6) || self.ipv6.matches('([0-9a-fA-F:]/128|[02468aceACE:]/127|[048cC:]/126|[08:]/125|[0:]/124|(:0?|[02468aceACE]0)/123|(:0?|[048cC]0)/122|(:0?|[08]0)/121|(:0?|00)/120|(:0{0,2}|[02468aceACE]00)/119|(:0{0,2}|[048cC]00)/118|(:0{0,2}|[08]00)/117|(:0{0,2}|000)/116|(:0{0,3}|[02468aceACE]000)/115|(:0{0,3}|[048cC]000)/114|(:0{0,3}|[08]000)/113|:0{0,4}/112|([02468aceACE]:0{1,4}|::0{0,4})/111|([048cC]:0{1,4}|::0{0,4})/110|([08]:0{1,4}|::0{0,4})/109|(0:0{1,4}|::0{0,4})/108|((:0|[02468aceACE]0):0{1,4}|::0{0,4})/107|((:0|[048cC]0):0{1,4}|::0{0,4})/106|((:0|[08]0):0{1,4}|::0{0,4})/105|((:0|00):0{1,4}|::0{0,4})/104)$')";

/// 0, 127, 169.254 and from 224 on. Of larger networks that hold one of those, `check` says it.
pub(super) const IPV4_FOR_PODS: &str = "!has(self.ipv4) || (int(self.ipv4.substring(0, self.ipv4.indexOf('.'))) > 0 && int(self.ipv4.substring(0, self.ipv4.indexOf('.'))) < 224 && !self.ipv4.startsWith('127.') && !self.ipv4.startsWith('169.254.'))";

#[cfg(test)]
mod tests;
