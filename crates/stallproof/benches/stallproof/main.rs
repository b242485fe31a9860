//! The primitives of `stallproof` against what others would use, in one run.

mod gate;
mod lanes;
mod reads;
mod sight;

use std::process::ExitCode;
use std::time::Instant;

use bench::Table;

fn main() -> ExitCode {
    // `cargo bench` passes flags of its own; a first plain word is a filter.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let mut table = Table::new("stallproof");
    for (name, run) in [
        ("reads", reads::run as fn(&mut Table)),
        ("publish", reads::publish),
        ("lanes", lanes::run),
        ("gate", gate::run),
        ("sight", sight::run),
    ] {
        if wanted(name) {
            let began = Instant::now();
            eprint!("measuring {name} …");
            run(&mut table);
            eprintln!(" {:.1} s", began.elapsed().as_secs_f64());
        }
    }
    table.finish()
}

/// Nanoseconds per call: the best of five rounds, since noise only ever adds.
fn nanos_per_call(calls: u32, mut work: impl FnMut()) -> f64 {
    (0..5)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..calls {
                work();
            }
            began.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min)
}

/// The `p`th per cent of `values`.
fn percentile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * p / 100.0) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
