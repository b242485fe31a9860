//! The runtime of the command line: one thread, made by the verb that waits for a network.

use crate::output::Failure;

/// Runs a verb to its end. Work that only the kernel can end (a name that is being looked up, a read
/// of standard input) is left behind, not waited for.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure(format!("the runtime cannot start: {e}")))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
