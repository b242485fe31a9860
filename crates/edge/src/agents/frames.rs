//! `Frames`: the messages of a gRPC stream, each with its bytes granted before they are read.
//!
//! tonic's own reader would keep the largest message's room for as long as the stream is open, and
//! ask nobody for it: ten thousand idle agents would hold gigabytes. This one holds nothing between
//! two messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use stallproof::Deadline;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::server::refuse;
use crate::error_code::ErrorCode;

/// The bytes before a message: a flag and a length.
const HEADER: usize = 5;
/// For room to be found, then for the message to come in.
const ROOM: Duration = Duration::from_secs(10);
const MESSAGE: Duration = Duration::from_secs(10);
/// Bytes are granted in these.
const UNIT: usize = 1 << 10;
/// Bytes of memory that one byte of a message takes when it is decoded.
const GROWTH: usize = 4;

/// The bytes of all reports that are being read or counted.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    units: usize,
    room: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(1, u32::MAX as usize);
        Self { units, room: Arc::new(Semaphore::new(units)) }
    }

    /// The share that is taken, from 0 to 1.
    pub(super) fn taken(&self) -> f64 {
        1.0 - self.room.available_permits() as f64 / self.units as f64
    }

    async fn grant(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = (bytes * GROWTH).div_ceil(UNIT).clamp(1, self.units);
        let units = u32::try_from(units).ok()?;
        let granted = self.room.clone().acquire_many_owned(units);
        Deadline::after(ROOM).bound(granted).await.ok()?.ok()
    }
}

/// A message and the memory that was granted for it.
#[derive(Debug)]
pub(super) struct Framed {
    pub(super) bytes: Bytes,
    pub(super) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Frames<B = Incoming> {
    body: B,
    /// The rest of the last piece that came, which was not read yet.
    spare: Bytes,
    largest: usize,
    budget: Budget,
}

impl<B: Body<Data = Bytes> + Unpin> Frames<B> {
    pub(super) fn new(body: B, largest: usize, budget: Budget) -> Self {
        Self { body, spare: Bytes::new(), largest, budget }
    }

    /// Returns when the next message begins, or at the end (`false`). May be dropped and called again.
    pub(super) async fn wait(&mut self) -> Result<bool, Status> {
        while self.spare.is_empty() {
            match self.body.frame().await {
                None => return Ok(false),
                Some(frame) => self.spare = data(frame)?,
            }
        }
        Ok(true)
    }

    /// The message that has begun. Dropped in between, the stream is of no more use.
    pub(super) async fn read(&mut self) -> Result<Framed, Status> {
        let soon = Deadline::after(MESSAGE);
        let mut header = Vec::with_capacity(HEADER);
        self.fill(&mut header, HEADER, soon).await?;
        let mut header = header.as_slice();
        if header.get_u8() != 0 {
            return Err(Status::unimplemented("reports are not compressed"));
        }
        let length = header.get_u32() as usize;
        if length > self.largest {
            let why = format!("a report has {} bytes at most", self.largest);
            return Err(refuse(ErrorCode::TooLarge, why));
        }
        let room = self.budget.grant(length).await;
        let room = room.ok_or_else(|| refuse(ErrorCode::Overloaded, "no room for a report"))?;
        let mut message = Vec::with_capacity(length);
        self.fill(&mut message, length, Deadline::after(MESSAGE)).await?;
        Ok(Framed { bytes: message.into(), room })
    }

    async fn fill(
        &mut self,
        into: &mut Vec<u8>,
        length: usize,
        deadline: Deadline,
    ) -> Result<(), Status> {
        loop {
            let take = (length - into.len()).min(self.spare.len());
            into.extend_from_slice(&self.spare.split_to(take));
            if self.spare.is_empty() {
                // An empty piece would still hold the whole of what it was cut from.
                self.spare = Bytes::new();
            }
            if into.len() == length {
                return Ok(());
            }
            match deadline.bound(self.body.frame()).await {
                Ok(Some(frame)) => self.spare = data(frame)?,
                Ok(None) => return Err(refuse(ErrorCode::Invalid, "a report was cut off")),
                Err(_) => return Err(refuse(ErrorCode::TooLate, "a report did not come in time")),
            }
        }
    }
}

/// The bytes of a frame; a frame of trailers has none.
fn data<E>(frame: Result<hyper::body::Frame<Bytes>, E>) -> Result<Bytes, Status> {
    let frame = frame.map_err(|_| Status::cancelled("the connection broke"))?;
    Ok(frame.into_data().unwrap_or_default())
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
