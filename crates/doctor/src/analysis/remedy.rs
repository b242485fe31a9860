//! The way out for each class of fault: one sentence for tonight, one for the code.

use crate::report::FaultClass;

/// Two sentences.
pub fn remedy(class: FaultClass) -> &'static str {
    match class {
        FaultClass::LockOrderInversion => {
            "Restart the process: this deadlock cannot resolve itself. Give the locks one order \
             and take them in it everywhere, or release the first before taking the second."
        }
        FaultClass::RecursiveReadLock => {
            "Restart the process: the writer waits for the reader and the reader's second RLock \
             waits for the writer. Never call a method that locks while holding the read lock: \
             split it into a locking shell and a core that expects the lock to be held."
        }
        FaultClass::SelfDeadlock => {
            "Restart the process: the goroutine waits for itself. Split the inner function into \
             a locking shell and a core that expects the lock to be held."
        }
        FaultClass::Deadlock => {
            "Restart the process: each waits for the next, and none can be first. Break the cycle \
             where it is cheapest: release the lock before the channel or wait group operation."
        }
        FaultClass::HeldAcrossIo => {
            "End the call that the holder waits in (close its connection, restart its peer) and \
             the queue drains. Copy what is needed under the lock, release it, then do the I/O, \
             with a deadline."
        }
        FaultClass::HeldAcrossLock => {
            "Resolve the second lock's stall and this one goes with it. Do not take a lock while \
             holding another; copy under the first, release it, then take the second."
        }
        FaultClass::HeldAcrossChannel => {
            "Unblock the channel, wait group or condition that the holder waits for, or restart \
             the process. Release the lock before the operation, or make it a select with a \
             deadline."
        }
        FaultClass::HeldAcrossWork => {
            "Take a second dump to see whether the holder moves; if it does, the lock is too busy \
             rather than stuck. Make the locked section shorter, split the lock by key, or let \
             readers read a published copy."
        }
        FaultClass::LostUnlock => {
            "Restart the process: nobody is left to unlock. Look in every function that takes \
             this lock for a return, panic or break between Lock and Unlock, and use defer."
        }
        FaultClass::ExhaustedPool => {
            "Find who keeps what the pool lends: a missing Close or Release, or calls slower than \
             they used to be. Give every acquisition a deadline and refuse at once when the queue \
             is longer than can be served in it."
        }
        FaultClass::SlowConsumer => {
            "Look at what the receiving goroutine does: it is blocked, gone or slower than its \
             senders. Bound the wait with a select and a deadline, and drop or refuse what does \
             not fit, counted."
        }
        FaultClass::SilentProducer => {
            "Look at who should send or close: it is blocked, gone, or returned early without \
             closing. Wait in a select together with the request's context."
        }
        FaultClass::StuckIo => {
            "Look at the mount or device behind the path: a file server that does not answer keeps \
             the call, and no signal ends it until the mount is forced off. Touch such paths from \
             a goroutine of their own with a deadline, so that only they wait."
        }
        FaultClass::Leak => {
            "These goroutines can never proceed and keep what they reference until the process \
             ends. Give the channel operation a way out (a context, a buffered channel) or close \
             what they wait for."
        }
        FaultClass::RetryStorm => {
            "Let clients back off with jitter and honour a retry time, or turn some of them off \
             until the queue is empty. Refuse at once what cannot be served before its deadline, \
             so that a retry does not find its predecessor still queued."
        }
        FaultClass::StaleCache => {
            "Restarting drops the outdated answer. Give negative answers an expiry and a reset, \
             and look again when the thing they deny may have appeared."
        }
        FaultClass::LeaderLoss => {
            "Treat it as a consequence: the leader could not renew its lease while the process \
             stood still or swapped. Fix the stall that came before; then give the lease a thread \
             and memory of its own."
        }
        FaultClass::MemoryOverLimit => {
            "The memory is what the parked requests keep: ending the stall frees it, a larger \
             limit only delays the end. Bound what may be in flight, and refuse the rest."
        }
        FaultClass::UnansweredRequests => {
            "Find where these requests wait: take a goroutine dump while they do. Give each a \
             deadline on the server, so that a stuck one fails alone."
        }
        FaultClass::HotLock => {
            "Nothing is stuck: the lock changes hands, only often. Make the locked section shorter, \
             split the lock by key, or let readers read a published copy."
        }
        FaultClass::Queue => {
            "Collect what is listed next before anything is restarted: the evidence goes with the \
             process. Until the cause is known, shed load at the door so that memory stays bounded."
        }
    }
}
