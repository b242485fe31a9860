use std::future::pending;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};

use super::*;

#[tokio::test]
async fn more_than_fits_is_told_in_order() {
    let told = ProgressStream::new(|tell| async move {
        for number in 0..AHEAD * 3 {
            tell.tell(number).await;
        }
    });
    assert_eq!(told.collect::<Vec<_>>().await, (0..AHEAD * 3).collect::<Vec<_>>());
}

#[tokio::test]
async fn dropped_it_drops_the_work() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let mut stream = ProgressStream::new(|tell| async move {
        tell.tell(1).await;
        pending::<()>().await;
        drop(held);
    });
    assert_eq!(stream.next().await, Some(1));
    assert_eq!(stream.next().now_or_never(), None);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(stream);
    assert_eq!(Arc::strong_count(&alive), 1);
}
