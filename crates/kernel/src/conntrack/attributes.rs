//! The attributes that netfilter's messages are made of: length, kind, value, each at a multiple of
//! four. Reading is total: what is cut short ends the list.

/// The flags beside an attribute's kind: it holds attributes, or its value is in network order.
const NESTED: u16 = 1 << 15;
const KIND: u16 = 0x3fff;
const HEADER: usize = 4;

pub(crate) fn read(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
        let value = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Reads the value, if it has the length of a number in network order.
pub(crate) fn number<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

pub(crate) fn write(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nest(out, kind, |out| out.extend(value));
}

/// Writes an attribute that holds others.
pub(crate) fn nested(out: &mut Vec<u8>, kind: u16, inside: impl FnOnce(&mut Vec<u8>)) {
    nest(out, kind | NESTED, inside);
}

fn nest(out: &mut Vec<u8>, kind: u16, inside: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 2]);
    out.extend(kind.to_ne_bytes());
    inside(out);
    // Callers keep what they write below 64 KiB, which is what the length has room for.
    let length = (out.len() - start) as u16;
    out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Writes a whole message: netlink's header, netfilter's (family, version and a number of the subsystem),
/// and what `inside` writes.
pub(crate) fn message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    netfilter: [u8; 4],
    inside: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]); // from whom: the kernel knows
    out.extend(netfilter);
    inside(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}
