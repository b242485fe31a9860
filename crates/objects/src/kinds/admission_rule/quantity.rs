//! Kubernetes' quantities: `500m`, `1.5Gi`, `2e3`.

/// The most digits after the point; what is finer is rounded up, as Kubernetes does.
const FINEST: usize = 9;

/// A quantity in billionths, saturating: no comparison of a rule reaches that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (ten, two) = scale(suffix)?;
        // Billionths of the mantissa; digits that a large exponent would bring back are kept.
        let kept = fraction.len().min(FINEST + usize::try_from(ten.max(0)).ok()?.min(18));
        let mut mantissa: i128 = 0;
        for digit in whole.bytes().chain(fraction[..kept].bytes()) {
            mantissa = mantissa.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        }
        if fraction[kept..].bytes().any(|b| b != b'0') {
            mantissa = mantissa.saturating_add(1);
        }
        mantissa = mantissa.saturating_mul(1_i128.checked_shl(two).unwrap_or(i128::MAX));
        let power = 9 + ten - i32::try_from(kept).ok()?;
        let value = if power >= 0 {
            let factor = 10_i128.checked_pow(power.unsigned_abs()).unwrap_or(i128::MAX);
            mantissa.saturating_mul(factor)
        } else {
            match 10_i128.checked_pow(power.unsigned_abs()) {
                Some(divisor) => ceil(mantissa, divisor),
                None => i128::from(mantissa != 0),
            }
        };
        Some(Self(if negative { -value } else { value }))
    }

    /// Rounded up to thousandths.
    pub fn millis(self) -> i128 {
        ceil(self.0, 1_000_000)
    }

    /// Rounded up to whole ones.
    pub fn whole(self) -> i128 {
        ceil(self.0, 1_000_000_000)
    }
}

fn ceil(value: i128, divisor: i128) -> i128 {
    value / divisor + i128::from(value % divisor > 0)
}

/// Powers of ten and of two.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (exponent.parse::<i16>().ok()?.into(), 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Quantity;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let millis = |text| Quantity::parse(text).map(Quantity::millis);
        let cases = [
            ("1", 1000),
            ("500m", 500),
            ("0.1", 100),
            (".5", 500),
            ("1.", 1000),
            ("100u", 1),
            ("1n", 1),
            ("1k", 1_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2e3", 2_000_000),
            ("2E-3", 2),
            ("1E", 1_000_000_000_000_000_000_000),
            ("0.0000000001", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for text in ["", "m", "1 Gi", "1gi", "0x10", "1.2.3", "e3", "1e", "NaN", "-"] {
            assert_eq!(millis(text), None, "{text:?}");
        }
        assert_eq!(Quantity::parse("128974848.5").map(Quantity::whole), Some(128_974_849));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+]?[0-9.]{0,60}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{0,6})") {
            let _ = Quantity::parse(&text);
        }
    }
}
