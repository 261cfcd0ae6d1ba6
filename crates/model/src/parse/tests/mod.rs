//! Accepted schema files, and the findings about others.

mod behaviour;
mod damage;
mod findings;
mod live;
mod published;
mod shapes;
mod versions;
