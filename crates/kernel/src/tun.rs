//! TUN: a network interface whose packets a program reads and writes.
//!
//! Contract: the interface is made in the network namespace of the calling thread, and is gone when the
//! [`Tun`] is dropped or its process ends. Reads and writes never wait; each carries one whole IP packet.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};

/// `TUNSETIFF`: makes the file the interface of that name.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const DEVICE: &str = "/dev/net/tun";
/// The longest name of an interface.
const NAME: usize = libc::IFNAMSIZ - 1;

/// An interface, held by its file.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
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
            flags: (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the kernel reads and writes one `struct ifreq`, which `request` has the size of and
        // which outlives the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file })
    }

    /// Reads one packet; `WouldBlock` if there is none.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut *packet))?)
    }

    /// Writes one packet; `WouldBlock` if there is no room.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::io::write(&self.file, packet))?;
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
