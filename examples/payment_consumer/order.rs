//! What is to be paid.

use std::collections::HashMap;

use crate::limits::GATEWAYS;

/// Merchants at each gateway. The first has twice as many payments as any other.
const MERCHANTS: u32 = 7;

/// A payment or a refund, as it stands in an entry of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) number: u32,
    /// The place of its gateway.
    pub(crate) gateway: usize,
    pub(crate) merchant: String,
    pub(crate) is_refund: bool,
}

impl Order {
    /// The order of a number, from 0 on. Every sixth is a refund.
    pub(crate) fn numbered(number: u32) -> Self {
        let merchant = (number / 2) % (MERCHANTS + 1) % MERCHANTS;
        Self {
            number,
            gateway: if number.is_multiple_of(2) { 0 } else { GATEWAYS.len() - 1 },
            merchant: format!("merchant-{merchant}"),
            is_refund: number % 6 == 3,
        }
    }

    /// Where it is to be made, at its gateway.
    pub(crate) fn path(&self) -> String {
        format!("/{}/{}", if self.is_refund { "refunds" } else { "payments" }, self.number)
    }

    /// The fields of an entry.
    pub(crate) fn fields(&self) -> [(&'static str, String); 4] {
        [
            ("number", self.number.to_string()),
            ("gateway", GATEWAYS[self.gateway].to_owned()),
            ("merchant", self.merchant.clone()),
            ("kind", if self.is_refund { "refund" } else { "payment" }.to_owned()),
        ]
    }

    /// The order in the fields of an entry, unless somebody else has put it there.
    pub(crate) fn of(fields: &HashMap<String, String>) -> Option<Self> {
        let gateway = fields.get("gateway")?;
        Some(Self {
            number: fields.get("number")?.parse().ok()?,
            gateway: GATEWAYS.iter().position(|name| name == gateway)?,
            merchant: fields.get("merchant")?.clone(),
            is_refund: match &**fields.get("kind")? {
                "refund" => true,
                "payment" => false,
                _ => return None,
            },
        })
    }
}

/// Whether the gateways fail whenever they are to make the order of this number.
pub(crate) fn is_broken(number: u32) -> bool {
    matches!(number, 13 | 42 | 77 | 109)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in (0..20).map(Order::numbered) {
            let mut fields = order.fields().map(|(name, value)| (name.to_owned(), value)).into();
            assert_eq!(Order::of(&fields), Some(order));
            fields.insert("gateway".to_owned(), "nowhere".to_owned());
            assert_eq!(Order::of(&fields), None);
        }
    }
}
