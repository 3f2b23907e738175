//! How often each operation of a mixed load comes.

use std::{fmt, str::FromStr};

use super::Operation;

/// Weights of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    weights: Vec<(Operation, u32)>,
    sum: u32,
}

/// Why a text is no list of shares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of shares, such as get=45,head=30,put=15,delete=10 (or list=…)")]
pub struct SharesError(String);

impl Shares {
    /// Reads `operation=weight`, separated by commas.
    ///
    /// # Errors
    /// When an operation is unknown or there twice, a weight is no number, or all are 0.
    pub fn parse(text: &str) -> Result<Self, SharesError> {
        let fault = || SharesError(text.to_owned());
        let (mut weights, mut sum) = (Vec::new(), 0_u32);
        for pair in text.split(',') {
            let (name, weight) = pair.split_once('=').ok_or_else(fault)?;
            let operation = [
                Operation::Get,
                Operation::Head,
                Operation::Put,
                Operation::Delete,
                Operation::List,
            ]
            .into_iter()
            .find(|operation| operation.name() == name.trim())
            .ok_or_else(fault)?;
            let weight: u32 = weight.trim().parse().map_err(|_| fault())?;
            if weights.iter().any(|(known, _)| *known == operation) {
                return Err(fault());
            }
            sum = sum.checked_add(weight).ok_or_else(fault)?;
            weights.push((operation, weight));
        }
        if sum == 0 {
            return Err(fault());
        }
        Ok(Self { weights, sum })
    }

    /// Picks one by chance.
    pub(crate) fn pick(&self, rng: &mut fastrand::Rng) -> Operation {
        let mut point = rng.u32(..self.sum);
        for (operation, weight) in &self.weights {
            if point < *weight {
                return *operation;
            }
            point -= weight;
        }
        unreachable!("the point is below the sum of the weights")
    }
}

impl FromStr for Shares {
    type Err = SharesError;

    fn from_str(text: &str) -> Result<Self, SharesError> {
        Self::parse(text)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, weight)) in self.weights.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}={weight}", operation.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_as_often_as_their_shares_say() {
        let shares = Shares::parse("get=3, put=1").unwrap();
        assert_eq!(shares.to_string(), "get=3,put=1");
        let mut rng = fastrand::Rng::with_seed(3);
        let gets = (0..4_000).filter(|_| shares.pick(&mut rng) == Operation::Get);
        let gets = gets.count();
        assert!((2_850..3_150).contains(&gets), "{gets} of 4000, seed 3");
    }

    #[test]
    fn what_is_no_list_of_shares_is_refused() {
        for text in [
            "",
            "get",
            "get=x",
            "get=0",
            "get=1,get=2",
            "part=1",
            "get=-1",
        ] {
            assert!(Shares::parse(text).is_err(), "{text:?}");
        }
    }
}
