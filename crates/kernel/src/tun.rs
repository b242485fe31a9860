//! TUN: a network interface whose packets a program reads and writes.
//!
//! Contract: the interface is made in the network namespace of the calling thread, and is gone when the
//! [`Tun`] is dropped or its process ends. Reads and writes never wait; each carries one whole IP packet,
//! and beside it what is left to do with that packet ([`Offload`]): the kernel hands TCP over in packets of
//! up to 64 kB with their sums not made, and takes such packets.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};

/// `TUNSETIFF`: makes the file the interface of that name.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
/// `TUNSETOFFLOAD`: says what the reader does itself.
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
/// Sums, and TCP of both IP families in segments (`TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`).
const OFFLOADED: libc::c_ulong = 0x1 | 0x2 | 0x4;
/// `IFF_VNET_HDR`: packets have a header of their own.
const WITH_HEADER: libc::c_int = 0x4000;
/// The size of `struct virtio_net_hdr`.
const HEADER: usize = 10;
/// In how many parts a packet may be written: one for each 1,000 bytes, and some.
pub const MOST_PARTS: usize = 72;
/// The largest packet that is read.
pub const LARGEST: usize = 1 << 16;
const DEVICE: &str = "/dev/net/tun";
/// The longest name of an interface.
const NAME: usize = libc::IFNAMSIZ - 1;

/// An interface, held by its file.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
}

/// What is left to do with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// If the packet is to be cut: how, and how long the payload of each segment is.
    pub segments: Option<(Segments, u16)>,
    /// If a sum is to be made: where what it is of begins, and where behind that the sum goes. The sum of the
    /// pseudo header is there already.
    pub checksum: Option<(u16, u16)>,
    /// How long the headers are, if the packet is to be cut.
    pub headers: u16,
}

/// What a packet is to be cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    Tcp4,
    Tcp6,
    /// Something that was not asked for.
    Other(u8),
}

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
/// A flag of the others: TCP that has congestion marked.
const GSO_ECN: u8 = 0x80;

impl Offload {
    fn decode(header: &[u8; HEADER]) -> Self {
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let segments = match header[1] & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP4 => Some((Segments::Tcp4, number(4))),
            GSO_TCP6 => Some((Segments::Tcp6, number(4))),
            other => Some((Segments::Other(other), number(4))),
        };
        let checksum = (header[0] & NEEDS_CHECKSUM != 0).then(|| (number(6), number(8)));
        Self { segments, checksum, headers: number(2) }
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let mut put = |at: usize, number: u16| {
            header[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        };
        put(2, self.headers);
        if let Some((_, size)) = self.segments {
            put(4, size);
        }
        if let Some((start, offset)) = self.checksum {
            put(6, start);
            put(8, offset);
        }
        header[0] = if self.checksum.is_some() { NEEDS_CHECKSUM } else { 0 };
        header[1] = match self.segments {
            None => GSO_NONE,
            Some((Segments::Tcp4, _)) => GSO_TCP4,
            Some((Segments::Tcp6, _)) => GSO_TCP6,
            Some((Segments::Other(kind), _)) => kind,
        };
        header
    }
}

/// `struct ifreq`, as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    /// The kernel copies the whole union.
    rest: [u8; 22],
}

impl Tun {
    /// Makes an interface. It has no address and is down.
    pub fn create(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() > NAME || name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an interface's name has 1 to {NAME} bytes: {name:?}"),
            ));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(DEVICE, flags, Mode::empty())?;
        let mut request = Request {
            name: [0; libc::IFNAMSIZ],
            flags: (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | WITH_HEADER)
                as libc::c_short,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the kernel reads and writes one `struct ifreq`, which `request` has the size of and
        // which outlives the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // A kernel that refuses hands over packets that are whole, which is as good.
        // SAFETY: the argument is a number.
        let _ = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADED) };
        Ok(Self { file })
    }

    /// Reads one packet of at most [`LARGEST`] bytes; `WouldBlock` if there is none.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<(Offload, usize)> {
        let mut header = [0; HEADER];
        let length = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut *packet)];
            rustix::io::readv(&self.file, &mut parts)
        })?;
        Ok((Offload::decode(&header), length.saturating_sub(HEADER)))
    }

    /// Writes one packet that is whole; `WouldBlock` if there is no room.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        self.write_parts(&Offload::default(), &[packet])
    }

    /// Writes one packet that is in parts, at most [`MOST_PARTS`]; `WouldBlock` if there is no room.
    pub fn write_parts(&self, offload: &Offload, packet: &[&[u8]]) -> io::Result<()> {
        let header = offload.encode();
        let mut parts = [IoSlice::new(&[]); MOST_PARTS + 1];
        let Some(used) = parts.get_mut(..=packet.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        used[0] = IoSlice::new(&header);
        for (part, bytes) in used[1..].iter_mut().zip(packet) {
            *part = IoSlice::new(bytes);
        }
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.file, used))?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
