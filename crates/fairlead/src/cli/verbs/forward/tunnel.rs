//! One forwarded connection, between a program on this machine and the server.
//!
//! Contract:
//! - A program that closes its end, or is gone, ends the connection at once: its place here and in
//!   the server is given back.
//! - One that only writes no more (`nc -N`) still gets its answer. It gives its place back and may
//!   go on beside the open ones, as long as few do so.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::peer;
use crate::cli::client::{Answer, CHUNK, IN_A_ROW, Socket, Told};

/// Connections at once: a browser opens six to a host, a pool of a test some ten; each costs a
/// thread here and a stream in the server.
pub(super) const AT_ONCE: usize = 64;
/// Connections that only wait for an answer, beside those.
const ANSWERED: usize = 64;
/// How often the kernel is asked whether a program that writes no more has closed: soon at first,
/// since it says so a moment before it has.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// For the server to hear that it is over, after all that was sent.
const GOODBYE: Duration = Duration::from_secs(1);

/// The places of one listener.
#[derive(Debug, Default)]
pub(super) struct Places {
    open: AtomicUsize,
    answered: AtomicUsize,
}

/// A place among the open connections, or among those that wait for an answer.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    answered: bool,
}

impl Places {
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let place = take(&self.open, AT_ONCE);
        place.then(|| Place { places: Arc::clone(self), answered: false })
    }
}

fn take(count: &AtomicUsize, most: usize) -> bool {
    let more = |count| (count < most).then_some(count + 1);
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
}

impl Place {
    /// From now on it waits for an answer. False if too many do.
    fn only_reads(&mut self) -> bool {
        if !self.answered {
            if !take(&self.places.answered, ANSWERED) {
                return false;
            }
            self.answered = true;
            self.places.open.fetch_sub(1, Ordering::AcqRel);
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let count = if self.answered { &self.places.answered } else { &self.places.open };
        count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Carries bytes until either side ends it.
pub(super) fn carry(mut local: TcpStream, mut socket: Socket, mut place: Place) -> Answer<()> {
    let (here, there) = (local.local_addr()?, local.peer_addr()?);
    let input = local.try_clone()?;
    // Once the program writes no more: when to ask next whether it has closed.
    let mut look: Option<Duration> = None;
    loop {
        let ready = socket.wait_for(look.is_none().then(|| input.as_fd()), None, look)?;
        if ready.input {
            let mut frame = vec![0; CHUNK];
            // One that was reset is one that has ended.
            let count = rustix::io::read(&local, &mut frame).unwrap_or(0);
            frame.truncate(count);
            if count == 0 {
                if ready.hung_up || peer::has_closed(here, there) || !place.only_reads() {
                    break;
                }
                look = Some(LOOK_FIRST);
            }
            // An empty frame says that no more will be written.
            socket.send(frame)?;
        } else if let Some(wait) = look {
            if peer::has_closed(here, there) {
                break;
            }
            look = Some((wait * 2).min(LOOK_LAST));
        }
        for _ in 0..IN_A_ROW {
            match socket.receive()? {
                Told::Nothing => break,
                Told::Closed => return Ok(()),
                // A program that has gone needs to be told nothing more.
                Told::Frame(bytes) if bytes.is_empty() => _ = local.shutdown(Shutdown::Write),
                Told::Frame(bytes) => {
                    if local.write_all(&bytes).is_err() {
                        socket.part(GOODBYE);
                        return Ok(());
                    }
                }
            }
        }
    }
    socket.part(GOODBYE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_only_waits_for_an_answer_gives_its_place_back() {
        let places = Arc::<Places>::default();
        let mut open: Vec<_> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(open.len(), AT_ONCE);
        assert!(open[0].only_reads() && open[0].only_reads(), "twice is once");
        let more = places.take().unwrap();
        assert!(places.take().is_none());
        drop(more);
        assert!(open.iter_mut().all(Place::only_reads), "{ANSWERED} may");
        let mut one = places.take().unwrap();
        assert!(!one.only_reads(), "more may not");
        drop((one, open));
        assert_eq!(places.open.load(Ordering::Acquire), 0);
        assert_eq!(places.answered.load(Ordering::Acquire), 0);
    }
}
