//! Money and prices, in whole numbers.
//!
//! An amount is a whole number of picodollars (10⁻¹² USD); a price is a whole number of them per
//! so many units. Quantity times price is rounded once, half up, to the picodollar; sums are exact;
//! cents are rounded, half up, when they are printed. So printed lines may differ from a printed
//! total by a cent, and the total is the right one.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, Sub},
};

use crate::quantity::Decimal;

/// Picodollars in a dollar.
const DOLLAR: i128 = 1_000_000_000_000;

/// An amount of US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(i128);

/// The product of a quantity and a price is beyond all money there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the workload is too large to be priced: give fewer objects, smaller ones or less time")]
pub struct TooMuch;

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Picodollars.
    pub(super) fn pico(self) -> i128 {
        self.0
    }

    /// Dollars with this many decimals, `0..=12`, rounded half up.
    pub fn with_decimals(self, decimals: u32) -> String {
        let unit = 10i128.pow(12 - decimals.min(12));
        let rounded = (self.0.abs() + unit / 2) / unit * unit;
        let sign = if self.0 < 0 && rounded > 0 { "-" } else { "" };
        let dollars = rounded / DOLLAR;
        let fraction = format!("{:012}", rounded % DOLLAR);
        match &fraction[..decimals.min(12) as usize] {
            "" => format!("{sign}{dollars}"),
            fraction => format!("{sign}{dollars}.{fraction}"),
        }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.with_decimals(2))
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Money {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// A price: picodollars for `per` units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pico: u128,
    per: u128,
}

impl Price {
    /// `dollars` for `per` units; `None` below the picodollar, beyond a billion, or per nothing.
    pub(super) fn new(dollars: Decimal, per: u128) -> Option<Self> {
        let pico = dollars.times_exactly(DOLLAR.unsigned_abs())?;
        let is_sane = pico <= DOLLAR.unsigned_abs() * 1_000_000_000 && per > 0;
        is_sane.then_some(Self { pico, per })
    }

    /// This price for each of `count` units of its unit: of a node an hour, that of a byte a
    /// second.
    pub(super) fn divided_by(self, count: u128) -> Option<Self> {
        let per = self.per.checked_mul(count).filter(|per| *per > 0)?;
        Some(Self { per, ..self })
    }

    /// The price of so many units, rounded half up to the picodollar.
    ///
    /// # Errors
    /// [`TooMuch`] beyond 10²⁶ dollars or so.
    pub fn of(self, quantity: u128) -> Result<Money, TooMuch> {
        let product = self.pico.checked_mul(quantity).ok_or(TooMuch)?;
        let rounded = product.checked_add(self.per / 2).ok_or(TooMuch)? / self.per;
        // Sums of a few dozen of these must fit as well.
        let pico = i128::try_from(rounded).map_err(|_| TooMuch)?;
        if pico > i128::MAX / 1024 {
            return Err(TooMuch);
        }
        Ok(Money(pico))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(dollars: &str, per: u128) -> Price {
        Price::new(Decimal::parse(dollars).unwrap(), per).unwrap()
    }

    #[test]
    fn cents_are_rounded_half_up_once() {
        for (dollars, count, cents) in [
            ("0.005", 1, "0.01"),
            ("0.004999", 1, "0.00"),
            ("0.0004", 1000, "0.40"),
            ("314.63", 1, "314.63"),
            ("0.1", 3, "0.30"),
        ] {
            let money = price(dollars, 1).of(count).unwrap();
            assert_eq!(money.to_string(), cents, "{dollars} x {count}");
        }
        let debt = Money::ZERO - price("1.005", 1).of(1).unwrap();
        assert_eq!(debt.to_string(), "-1.01");
    }

    #[test]
    fn a_third_of_a_price_is_rounded_to_the_picodollar_and_no_coarser() {
        let third = price("1", 3).of(1).unwrap();
        assert_eq!(third.with_decimals(12), "0.333333333333");
        assert_eq!(price("1", 3).of(3).unwrap().to_string(), "1.00");
    }

    #[test]
    fn what_can_not_be_priced_is_an_error() {
        assert_eq!(price("1000000", 1).of(u128::MAX / 2), Err(TooMuch));
        assert_eq!(Price::new(Decimal::parse("1").unwrap(), 0), None);
        assert_eq!(price("1", 2).divided_by(u128::MAX), None);
    }
}
