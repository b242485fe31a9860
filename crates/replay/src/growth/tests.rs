//! Planted costs: a clock that counts steps instead of time, and operations whose steps are known.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::{Dimension, Grows, MOST_ROUNDS, Row, meter::Meter, together};

/// A step takes a microsecond, and a byte is a byte.
#[derive(Clone, Default)]
struct Machine {
    steps: Rc<Cell<u64>>,
    bytes: Rc<Cell<u64>>,
}

impl Machine {
    fn work(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps as u64);
    }

    fn meter(&self) -> Meter {
        let (steps, bytes) = (Rc::clone(&self.steps), Rc::clone(&self.bytes));
        Meter::new(move || Duration::from_micros(steps.get()), move || bytes.get())
    }
}

/// The row of an operation of so many steps, by size.
fn row(grows: Grows, steps: impl Fn(usize) -> usize) -> Row {
    let round: Vec<_> = Dimension::Nodes
        .sizes()
        .map(|size| {
            let machine = Machine::default();
            let mut meter = machine.meter();
            meter.change("planted", grows, |_| machine.work(steps(size)));
            meter.costs
        })
        .into();
    together(Dimension::Nodes, Vec::new(), &round).remove(0)
}

#[test]
fn a_planted_cost_is_found_and_a_flat_one_holds() {
    let flat = row(Grows::Not, |_| 50);
    assert!(flat.ok, "{flat:?}");
    assert_eq!(flat.costs, [50_000.0; 4]);
    let tree = row(Grows::Not, |size| 10 * size.ilog2() as usize);
    assert!(tree.ok, "{tree:?}");
    let linear = row(Grows::Not, |size| size);
    assert!(!linear.ok && (linear.exponent - 1.0).abs() < 0.01, "{linear:?}");
    // A look at every node, beside work that is the same for all sizes.
    let beside = row(Grows::Not, |size| 200 + size);
    assert!(!beside.ok, "{beside:?}");
    let expected = row(Grows::Linearly, |size| size);
    assert!(expected.ok, "{expected:?}");
    let quadratic = row(Grows::Linearly, |size| size * size);
    assert!(!quadratic.ok && (quadratic.exponent - 2.0).abs() < 0.01, "{quadratic:?}");
}

#[test]
fn memory_that_grows_faster_than_the_size_is_found() {
    let standing = |bytes: fn(usize) -> usize| {
        let round: Vec<_> = Dimension::Nodes
            .sizes()
            .map(|size| {
                let machine = Machine::default();
                let mut meter = machine.meter();
                meter.standing("planted", || machine.bytes.set(bytes(size) as u64));
                meter.costs
            })
            .into();
        together(Dimension::Nodes, Vec::new(), &round).remove(0)
    };
    assert!(standing(|size| 1000 * size).ok);
    assert!(!standing(|size| 1000 * size * size).ok);
}

#[test]
fn noise_in_one_round_breaks_nothing_and_a_cost_in_all_of_them_is_not_noise() {
    let round = |noisy: usize| -> Vec<_> {
        let sizes = Dimension::Nodes.sizes().into_iter().enumerate();
        sizes
            .map(|(place, _)| {
                let machine = Machine::default();
                let mut meter = machine.meter();
                let steps = if place == noisy { 5000 } else { 100 };
                meter.change("planted", Grows::Not, |_| machine.work(steps));
                meter.costs
            })
            .collect()
    };
    let once = together(Dimension::Nodes, Vec::new(), &round(3));
    assert!(!once[0].ok);
    assert!(together(Dimension::Nodes, once, &round(2))[0].ok);
    let always =
        (0..MOST_ROUNDS).fold(Vec::new(), |rows, _| together(Dimension::Nodes, rows, &round(3)));
    assert!(!always[0].ok);
}
