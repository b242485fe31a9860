use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn whatever_a_stack_holds_unwinding_ends(
        offset in 0..200_000_u64,
        general in prop::array::uniform32(any::<u64>()),
        stack in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        // Somewhere in this program's own code, or near it.
        let counter = (Unwinder::new as *const () as u64 & !0xf).wrapping_add(offset);
        let registers = Registers { counter, general };
        let frames = Unwinder::new().frames(&registers, &stack);
        prop_assert!((1..=DEPTH).contains(&frames.len()));
    }
}
