/// Measures `pairs` of two (`false` one, `true` the other), each first every other time, and gives the
/// pair in the middle by the ratio of their figures: what a shared machine does to one of a pair it
/// does to the other.
///
/// # Panics
/// If there are no pairs.
pub fn in_turn<T>(
    pairs: usize,
    mut measure: impl FnMut(bool) -> T,
    figure: impl Fn(&T) -> f64,
) -> [T; 2] {
    let mut all: Vec<[T; 2]> = (0..pairs)
        .map(|pair| {
            let other_first = pair % 2 == 1;
            let first = measure(other_first);
            let second = measure(!other_first);
            if other_first { [second, first] } else { [first, second] }
        })
        .collect();
    let ratio = |[one, other]: &[T; 2]| figure(one) / figure(other);
    all.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    all.swap_remove(pairs / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_in_the_middle_is_given_with_each_in_its_place() {
        let mut figures = [10.0, 5.0, 4.0, 10.0, 10.0, 1.0].into_iter();
        let mut order = Vec::new();
        let measure = |other| {
            order.push(other);
            figures.next().unwrap_or_default()
        };
        // By ratio: 2, 2.5, 10.
        assert_eq!(in_turn(3, measure, |figure| *figure), [10.0, 4.0]);
        assert_eq!(order, [false, true, true, false, false, true]);
    }
}
