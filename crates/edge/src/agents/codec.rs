//! `Codec`: protobuf as tonic has it, with less room at hand.
//!
//! tonic takes its buffer when a call begins and keeps it as long as the call lasts. An agent's streams
//! last for days and their messages have some dozen bytes: 8 KiB for each of two streams of each of ten
//! thousand agents would be most of what they cost. A larger message makes more room for itself.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::BufferSettings;
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The buffer's size, and how much is gathered before it is sent (tonic's own figure).
const ROOM: usize = 256;
const GATHERED: usize = 32 << 10;

/// Encodes `S` and decodes `R`.
#[derive(Debug)]
pub(super) struct Codec<S, R>(PhantomData<(S, R)>);

impl<S, R> Default for Codec<S, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<S, R> tonic::codec::Codec for Codec<S, R>
where
    S: Message + Send + 'static,
    R: Message + Default + Send + 'static,
{
    type Encode = S;
    type Decode = R;
    type Encoder = ProstEncoder<S>;
    type Decoder = ProstDecoder<R>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<S, R>::raw_encoder(BufferSettings::new(ROOM, GATHERED))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<S, R>::raw_decoder(BufferSettings::new(ROOM, GATHERED))
    }
}
