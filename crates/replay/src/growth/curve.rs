//! `Curve`: costs at several sizes, and by which power of the size they grow.

/// Costs by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<(usize, f64)>);

impl Curve {
    pub fn new(points: impl IntoIterator<Item = (usize, f64)>) -> Self {
        Self(points.into_iter().collect())
    }

    pub fn costs(&self) -> Vec<f64> {
        self.0.iter().map(|(_, cost)| *cost).collect()
    }

    /// The slope of the line that is nearest to the logarithms of the costs over those of the sizes: 0 if the
    /// size makes no difference, 1 if twice the size costs twice as much. NaN, which no limit holds, where
    /// a cost was not measured.
    pub fn exponent(&self) -> f64 {
        let points: Vec<_> =
            self.0.iter().map(|(size, cost)| ((*size as f64).log2(), cost.log2())).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (size, cost) = (mean(|it| it.0), mean(|it| it.1));
        let together: f64 = points.iter().map(|(x, y)| (x - size) * (y - cost)).sum();
        together / points.iter().map(|(x, _)| (x - size).powi(2)).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cost: impl Fn(f64) -> f64) -> f64 {
        Curve::new([100, 200, 400, 800].map(|size| (size, cost(size as f64)))).exponent()
    }

    #[test]
    fn the_exponent_is_the_power_of_the_size() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        near(of(|_| 7.0), 0.0);
        near(of(|size| 3.0 * size), 1.0);
        near(of(|size| 0.5 * size * size), 2.0);
        near(of(f64::sqrt), 0.5);
        near(of(f64::recip), -1.0);
    }

    #[test]
    fn a_logarithm_is_nearly_flat_and_what_is_beside_a_linear_cost_hides_little_of_it() {
        assert!(of(f64::log2) < 0.2);
        // At the first size the linear part is a tenth of all, at the last nearly half.
        assert!(of(|size| 900.0 + size) > 0.2);
        assert!(of(|size| 100.0 + size) > 0.7);
    }

    #[test]
    fn what_was_not_measured_holds_no_limit() {
        let gap = Curve::new([(1, 1.0), (2, f64::NAN), (4, 1.0)]).exponent();
        assert!(gap.is_nan());
        let nothing = Curve::new([(1, 0.0), (2, 0.0)]).exponent();
        assert!(nothing.is_nan());
    }
}
