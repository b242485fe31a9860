use super::*;

/// A datagram of listed tables, chains, rules, sets and elements, or one message of it.
///
/// Elements that are joined are in order, and none ends before it begins.
pub fn nftables(bytes: &[u8]) {
    let payloads = messages(bytes).map(|raw| (raw.message_type(), raw.payload().to_vec()));
    for (kind, payload) in payloads.chain([(NEW_RULE, bytes.to_vec())]) {
        let _ = listing::table(&payload);
        let _ = listing::chain(&payload);
        let _ = listing::rule(&payload);
        let _ = listing::set(&payload);
        let _ = listing::generation(&payload);
        let _ = listing::table_of(&payload);
        let _ = listing::describe(kind, &payload);
        for ranges in [false, true] {
            let set = Set { ranges, ..Set::hash("x", &[Field::Ipv4]) };
            let elements = listing::joined(listing::elements(&payload), &set);
            assert!(elements.is_sorted_by(|a, b| a.key <= b.key));
        }
    }
}
