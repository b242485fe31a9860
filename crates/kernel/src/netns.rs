//! Network namespaces, held by file descriptor.
//!
//! Contract: a [`Namespace`] is checked to be a network namespace when it is made, whatever path or
//! process it came from. Work that must run inside one gets a thread made for it, which ends with the work.
//! A socket that outlives the thread stays in the namespace it was opened in and can be used from any
//! thread. To open one, which is a few system calls, the caller's own thread goes in and comes back: it
//! runs nothing else meanwhile, and does not go on until it is back.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::netlink::Netlink;
use crate::nftables::Nftables;

/// The file system type of namespace files.
const NSFS_MAGIC: i64 = 0x6e73_6673;
/// `_IO(0xb7, 3)`: asks which kind of namespace a file is.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
/// The pause between two attempts to leave a namespace.
const RETURN: Duration = Duration::from_millis(10);
/// Work inside a namespace is a few system calls deep.
const STACK: usize = 256 << 10;

/// One network namespace, kept alive for as long as this is held.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
    id: NamespaceId,
}

/// Identifies a network namespace by the device and inode of its file, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceId {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the network namespace cannot be opened")]
    Open(#[source] io::Error),
    #[error("the file is not a network namespace")]
    NotANamespace,
    #[error("the network namespace cannot be examined")]
    Examine(#[source] io::Error),
}

impl Namespace {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        // Not blocking: the path may be a FIFO that nobody writes to.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path.as_ref(), flags, Mode::empty())
            .map_err(|error| Error::Open(error.into()))?;
        Self::try_from(file)
    }

    /// Makes a namespace with a loopback that is down and nothing else. It has no name, and is gone when
    /// nothing holds it.
    pub fn create() -> io::Result<Self> {
        let inside = thread::Builder::new().name("netns".to_owned()).stack_size(STACK);
        let made = inside.spawn(|| {
            // SAFETY: of all that may be unshared, only the file table could surprise Rust code.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::current().map_err(io::Error::other)
        })?;
        made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Opens the namespace that the calling thread is in.
    pub fn current() -> Result<Self, Error> {
        Self::open("/proc/thread-self/ns/net")
    }

    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// Runs `work` inside, on a thread made for it; the caller sees its panic.
    pub fn run_in<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = thread::Builder::new().name("netns".to_owned()).stack_size(STACK);
            let inside = inside.spawn_scoped(scope, || {
                let entered =
                    move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network));
                // Whoever may enter no namespace may be in this one already.
                if let Err(error) = entered
                    && Self::current().map_or(true, |current| current.id != self.id)
                {
                    return Err(error.into());
                }
                Ok(work())
            })?;
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens a netlink socket of this namespace, for use from any thread.
    pub fn netlink(&self) -> io::Result<Netlink> {
        self.open_in(Netlink::socket)?.and_then(Netlink::of)
    }

    /// Opens a socket for packet filter rules of this namespace, for use from any thread.
    pub fn nftables(&self) -> io::Result<Nftables> {
        self.open_in(Nftables::socket)?.and_then(Nftables::of)
    }

    /// Opens a socket inside, on the calling thread: to make a thread for it takes longer than all of this.
    /// Whoever may enter no namespace may be in this one already.
    fn open_in<T>(&self, open: fn() -> T) -> io::Result<T> {
        let home = Self::current().map_err(io::Error::other)?;
        if home.id == self.id {
            return Ok(open());
        }
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.as_fd(), network)?;
        let opened = open();
        // Whoever came in may leave. Should the kernel have no memory for that now, this waits until it has:
        // nothing may run on a thread that is in the wrong namespace.
        while move_into_link_name_space(home.as_fd(), network).is_err() {
            thread::sleep(RETURN);
        }
        Ok(opened)
    }
}

impl TryFrom<OwnedFd> for Namespace {
    type Error = Error;

    fn try_from(file: OwnedFd) -> Result<Self, Error> {
        let look = |error: rustix::io::Errno| Error::Examine(error.into());
        let system = rustix::fs::fstatfs(&file).map_err(look)?;
        // Asked before the ioctl, whose number means something else to other files.
        if system.f_type != NSFS_MAGIC {
            return Err(Error::NotANamespace);
        }
        // SAFETY: takes no argument, and answers with a number.
        let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE) };
        if kind < 0 {
            return Err(Error::Examine(io::Error::last_os_error()));
        }
        if kind != libc::CLONE_NEWNET {
            return Err(Error::NotANamespace);
        }
        let stat = rustix::fs::fstat(&file).map_err(look)?;
        Ok(Self { file, id: NamespaceId { device: stat.st_dev, inode: stat.st_ino } })
    }
}

impl TryFrom<File> for Namespace {
    type Error = Error;

    fn try_from(file: File) -> Result<Self, Error> {
        OwnedFd::from(file).try_into()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
