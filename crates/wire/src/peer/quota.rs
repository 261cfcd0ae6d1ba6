//! How many connections each address has, over all threads: one client must not take the places of
//! all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses and their connections.
#[derive(Debug, Default)]
pub(crate) struct AddressQuota(Mutex<HashMap<IpAddr, usize>>);

/// One of an address's connections; given back when dropped.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    quota: Arc<AddressQuota>,
    address: IpAddr,
}

impl AddressQuota {
    /// Counts one more connection. None if the address has as many as it may.
    pub(crate) fn take(
        self: &Arc<AddressQuota>,
        address: IpAddr,
        most: usize,
    ) -> Option<AddressSlot> {
        let address = client_network(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(AddressSlot { quota: self.clone(), address })
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut counts = self.quota.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// What counts as one client: an address of IPv4, or the network (/64) of an address of IPv6, from
/// which a client takes as many addresses as it likes.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_limit_and_gets_its_slots_back() {
        let quota = Arc::new(AddressQuota::default());
        let take = |address: &str| quota.take(address.parse().unwrap(), 2);
        let first = take("192.0.2.1").unwrap();
        let _second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some(), "others are not concerned");
        drop(first);
        assert!(take("192.0.2.1").is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let quota = Arc::new(AddressQuota::default());
        let take = |address: &str| quota.take(address.parse().unwrap(), 2);
        let kept = (take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap());
        assert!(take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::1").is_some());
        drop(kept);
        assert!(quota.0.lock().unwrap().is_empty(), "nothing is kept of those who left");
    }
}
