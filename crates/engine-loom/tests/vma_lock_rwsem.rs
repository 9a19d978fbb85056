//! Models of the VMA lock that is a semaphore apart: see `model/vma.rs`.

mod model;

use model::vma;
use softfault_engine_loom::policy::VmaLockKind::Rwsem;

#[test]
fn reader_against_reuse_in_another_space() {
    vma::reader_against_reuse_in_another_space(Rwsem, None);
}

#[test]
fn reader_against_reuse_for_another_range() {
    vma::reader_against_reuse_for_another_range(Rwsem, None);
}

#[test]
fn reader_of_the_new_mapping_against_reuse() {
    vma::reader_of_the_new_mapping_against_reuse(Rwsem, None);
}

#[test]
fn reader_against_attach() {
    vma::reader_against_attach(Rwsem, None);
}

#[test]
fn writer_against_two_readers() {
    vma::writer_against_two_readers(Rwsem, Some(3));
}

#[test]
fn two_writers_against_a_reader() {
    vma::two_writers_against_a_reader(Rwsem, Some(2));
}

#[test]
fn writer_against_a_reader_that_comes_twice() {
    vma::writer_against_a_reader_that_comes_twice(Rwsem, None);
}

#[test]
fn readers_at_the_limit() {
    vma::readers_at_the_limit(Rwsem, None);
}

#[test]
fn a_reader_at_the_limit_against_a_writer() {
    vma::a_reader_at_the_limit_against_a_writer(Rwsem, Some(3));
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    vma::letting_mmap_lock_go_ends_all_write_locks(Rwsem, None);
}

#[test]
fn locked_reader_against_a_writer() {
    vma::locked_reader_against_a_writer(Rwsem, None);
}

#[test]
fn the_last_put_wakes_a_writer_whose_space_is_gone() {
    vma::the_last_put_wakes_a_writer_whose_space_is_gone(Rwsem, Some(5));
}

#[test]
fn a_slot_that_another_space_claims() {
    vma::a_slot_that_another_space_claims(Rwsem, None);
}
