//! Checks the history of a set of registers: every write that was acknowledged, every read with its answer.
//!
//! A register has one writer, which writes 1, 2, 3 … and writes the next value only when it knows what
//! became of the last; after an answer that does not say so it goes on with another register. So an order
//! of the writes is known, and each read can be judged by itself:
//! - nothing acknowledged is lost: a read that begins after a write was acknowledged finds it or a later one;
//! - no read goes back in time, neither against a write nor against a read of the same client;
//! - nothing is read that nobody wrote.

use std::collections::BTreeMap;

use super::scope::Ms;

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) register: String,
    pub(super) value: u64,
    pub(super) from: Ms,
    /// When it was acknowledged, if it was.
    pub(super) acknowledged: Option<Ms>,
}

#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) client: String,
    pub(super) register: String,
    /// 0 if there was no such object.
    pub(super) value: u64,
    pub(super) from: Ms,
    pub(super) until: Ms,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<Read>,
}

impl History {
    pub(super) fn acknowledged(&self) -> usize {
        self.writes.iter().filter(|write| write.acknowledged.is_some()).count()
    }

    /// What does not hold.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut writes: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
        for write in &self.writes {
            writes.entry(&write.register).or_default().push(write);
        }
        let mut broken = Vec::new();
        for read in &self.reads {
            let of = writes.get(read.register.as_str()).map_or(&[][..], Vec::as_slice);
            let before = of.iter().filter(|it| it.acknowledged.is_some_and(|at| at < read.from));
            let floor = before.map(|it| it.value).max().unwrap_or_default();
            let begun = of.iter().filter(|it| it.from <= read.until);
            let ceiling = begun.map(|it| it.value).max().unwrap_or_default();
            let Read { client, register, value, from, .. } = read;
            if *value < floor {
                broken.push(format!(
                    "{client} read {value} of {register} at {from}, and {floor} had been acknowledged before"
                ));
            }
            if *value > ceiling {
                broken.push(format!("{client} read {value} of {register}, which nobody wrote"));
            }
        }
        broken.extend(self.back_in_time());
        broken
    }

    fn back_in_time(&self) -> Vec<String> {
        let mut reads: Vec<&Read> = self.reads.iter().collect();
        reads.sort_by_key(|read| read.from);
        let mut last: BTreeMap<(&str, &str), &Read> = BTreeMap::new();
        let mut broken = Vec::new();
        for read in reads {
            let key = (read.client.as_str(), read.register.as_str());
            if let Some(last) = last.get(&key)
                && last.until <= read.from
                && last.value > read.value
            {
                let Read { client, register, value, .. } = read;
                broken.push(format!("{client} read {} of {register} and then {value}", last.value));
            }
            if last.get(&key).is_none_or(|last| last.value <= read.value) {
                last.insert(key, read);
            }
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, from: Ms, acknowledged: Option<Ms>) -> Write {
        Write { register: "r".to_owned(), value, from, acknowledged }
    }

    fn read(client: &str, value: u64, from: Ms, until: Ms) -> Read {
        Read { client: client.to_owned(), register: "r".to_owned(), value, from, until }
    }

    fn written() -> Vec<Write> {
        vec![write(1, 0, Some(10)), write(2, 20, Some(30)), write(3, 40, None)]
    }

    #[test]
    fn a_history_of_one_copy_holds() {
        // Reads that run beside a write see it or not; one of unknown outcome may be seen.
        let reads = vec![
            read("a", 0, 5, 8),
            read("a", 1, 11, 12),
            read("b", 2, 21, 22),
            read("a", 2, 31, 35),
            read("a", 3, 41, 50),
        ];
        let history = History { writes: written(), reads };
        assert_eq!(history.broken(), Vec::<String>::new());
        assert_eq!(history.acknowledged(), 2);
    }

    #[test]
    fn a_lost_write_is_found() {
        let reads = vec![read("end", 1, 100, 101)];
        let broken = History { writes: written(), reads }.broken();
        assert!(broken.iter().any(|it| it.contains("2 had been acknowledged")), "{broken:?}");
    }

    #[test]
    fn a_stale_read_is_found() {
        // Of a client that never read before.
        let reads = vec![read("a", 1, 31, 35)];
        assert_eq!(History { writes: written(), reads }.broken().len(), 1);
    }

    #[test]
    fn a_read_that_goes_back_in_time_is_found() {
        // The write was never acknowledged: only the client's own reads tell.
        let writes = vec![write(1, 0, None)];
        let reads = vec![read("a", 1, 10, 11), read("b", 0, 12, 13), read("a", 0, 14, 15)];
        let broken = History { writes, reads }.broken();
        assert_eq!(broken, ["a read 1 of r and then 0"]);
    }

    #[test]
    fn a_value_from_nowhere_is_found() {
        let reads = vec![read("a", 9, 50, 51)];
        let broken = History { writes: written(), reads }.broken();
        assert!(broken.iter().any(|it| it.contains("nobody wrote")), "{broken:?}");
    }
}
