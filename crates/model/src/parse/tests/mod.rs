//! What a schema file may say, and what is told about one that it may not.

mod behaviour;
mod damage;
mod findings;
mod live;
mod published;
mod shapes;
mod versions;
