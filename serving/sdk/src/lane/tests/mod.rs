//! Tests of the lane's core: the promise under random trouble (`world`), and single paths (`cases`).

mod cases;
mod world;
