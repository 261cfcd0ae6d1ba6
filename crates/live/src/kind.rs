//! The kinds of ephemeral messages and their names.

pub const TYPING: &str = "typing";
pub const ONLINE: &str = "online";
/// The types of ephemeral messages.
pub const EPHEMERAL: [&str; 2] = [TYPING, ONLINE];

/// The kind of a message. In the order in which waiting messages are sent: a user is announced as
/// online before they type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Online,
    Typing,
}

/// One value for each kind of message.
pub type PerKind<T> = [T; 2];

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Online, Kind::Typing];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Typing => TYPING,
            Kind::Online => ONLINE,
        }
    }

    pub fn of(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Some kinds, or none; one byte, since every connection has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub fn add(&mut self, kind: Kind) {
        self.0 |= 1 << kind as u8;
    }

    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
