//! Benchmarks. Every number is measured in one run beside its rival and told as a ratio; absolute
//! figures stand beside it only to give the scale of this machine on this day.

pub mod table;
