use std::sync::Arc;

use objects::kinds::{AddressBlockSpec, AddressBlockStatus};
use proptest::prelude::*;

use super::*;

/// What a block of a small range may be: who has it, where it begins, how large it is, and what is used of it.
type Drawn = (bool, u32, u8, u32);

fn block(name: &str, (own, at, bits, used): Drawn) -> Arc<AddressBlock> {
    let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + at);
    let ipv4 = ipnet::Ipv4Net::new(address, 32 - bits).map(|net| net.trunc()).ok();
    let spec = AddressBlockSpec {
        pool: "default".to_owned(),
        index: at,
        node: if own { "me" } else { "you" }.to_owned(),
        ipv4,
        ipv6: None,
        node_addresses: Vec::new(),
    };
    let mut block = AddressBlock::new(name, spec);
    block.status = Some(AddressBlockStatus { used, free: 0, trouble: None });
    Arc::new(block)
}

/// The same by a look at everything.
fn expected(blocks: &Blocks) -> BTreeMap<String, BTreeSet<String>> {
    let own = blocks.iter().filter(|(_, block)| block.spec.node == "me");
    let overlapping = |name: &String, block: &AddressBlock| {
        let others = blocks.iter().filter(|(other, it)| *other != name && overlap(block, it));
        others.map(|(other, _)| other.clone()).collect()
    };
    own.map(|(name, block)| (name.clone(), overlapping(name, block))).collect()
}

proptest! {
    #[test]
    fn what_is_followed_by_changes_is_what_a_look_at_all_finds(
        // Several edits between two looks, of blocks of up to eight addresses, and now and then of one that is
        // larger than any may be.
        steps in proptest::collection::vec(proptest::collection::vec((
            0..6_u32,
            proptest::option::weighted(0.8, (
                any::<bool>(), 0..32_u32, prop_oneof![9 => 0..4_u8, 1 => Just(20_u8)], 0..2_u32,
            )),
        ), 0..5), 1..20),
    ) {
        let (mut own, mut blocks) = (OwnBlocks::new("me"), Blocks::default());
        for edits in steps {
            for (number, drawn) in edits {
                let name = format!("default-{number}");
                let new = drawn.map(|drawn| block(&name, drawn));
                blocks.set(name, new);
            }
            own.follow(&blocks);
            prop_assert_eq!(&own.overlapping, &expected(&blocks));
        }
    }
}
