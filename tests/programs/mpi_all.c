/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What MPI programs do, checked: messages of all sizes around a ring, many at once, collectives, and
 * one-sided access with puts, gets and atomics (not with the argument "two-sided"). Any number of
 * ranks from 2.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE	    200
#define ITEMS	    100000
#define ADDS	    100
#define ACCUMULATES 20

static int rank, ranks, next, before;

#define CHECK(x)                                                                           \
	do {                                                                               \
		if (!(x)) {                                                                \
			fprintf(stderr, "rank %d, line %d: not %s\n", rank, __LINE__, #x); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                      \
		}                                                                          \
	} while (0)

static void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes + 1);

	CHECK(p);
	return p;
}

static char byte_of(int sender, int i, int size)
{
	return (char)(i * 7 + sender + size);
}

/* Eager, and with a rendezvous. */
static void around(int size)
{
	char *out = allocate((size_t)size), *in = allocate((size_t)size);
	MPI_Status status;
	int got;

	for (int i = 0; i < size; i++)
		out[i] = byte_of(rank, i, size);
	MPI_Sendrecv(out, size, MPI_CHAR, next, 1, in, size, MPI_CHAR, before, 1, MPI_COMM_WORLD,
		     &status);
	MPI_Get_count(&status, MPI_CHAR, &got);
	CHECK(got == size);
	for (int i = 0; i < size; i++)
		CHECK(in[i] == byte_of(before, i, size));
	free(out);
	free(in);
}

static void many_at_once(void)
{
	MPI_Request requests[2 * AT_ONCE];
	int in[AT_ONCE], out[AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++)
		MPI_Irecv(&in[i], 1, MPI_INT, before, 100 + i, MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < AT_ONCE; i++) {
		out[i] = rank * AT_ONCE + i;
		MPI_Isend(&out[i], 1, MPI_INT, next, 100 + i, MPI_COMM_WORLD,
			  &requests[AT_ONCE + i]);
	}
	MPI_Waitall(2 * AT_ONCE, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < AT_ONCE; i++)
		CHECK(in[i] == before * AT_ONCE + i);
}

static void collectives(void)
{
	double *mine = allocate(ITEMS * sizeof(double));
	double *all = allocate((size_t)ranks * ITEMS * sizeof(double));
	long sum, part;

	for (int i = 0; i < 50; i++) {
		part = rank + i;
		MPI_Allreduce(&part, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		CHECK(sum == (long)ranks * (ranks - 1) / 2 + (long)ranks * i);
	}
	for (int i = 0; i < ITEMS; i++)
		mine[i] = rank + i;
	MPI_Allgather(mine, ITEMS, MPI_DOUBLE, all, ITEMS, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks * ITEMS; i++)
		CHECK(all[i] == i / ITEMS + i % ITEMS);
	MPI_Alltoall(all, ITEMS / ranks, MPI_DOUBLE, mine, ITEMS / ranks, MPI_DOUBLE,
		     MPI_COMM_WORLD);
	CHECK(mine[0] == all[rank * (ITEMS / ranks)]);
	MPI_Bcast(mine, ITEMS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	CHECK(mine[0] == 0);
	free(mine);
	free(all);
}

static void one_sided(void)
{
	long *window, seen[1000], old, one = 1, id = rank + 1;
	MPI_Win win;

	MPI_Win_allocate(sizeof(seen), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, sizeof(seen));
	MPI_Win_fence(0, win);
	for (int r = 0; r < ranks; r++)
		MPI_Put(&id, 1, MPI_LONG, r, rank, 1, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int r = 0; r < ranks; r++)
		CHECK(window[r] == r + 1);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < ADDS; i++) {
		MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 500, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	for (int i = 0; i < ACCUMULATES; i++)
		MPI_Accumulate(&one, 1, MPI_LONG, next, 501, 1, MPI_LONG, MPI_SUM, win);
	MPI_Win_flush_all(win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(seen, 1000, MPI_LONG, 0, 0, 1000, MPI_LONG, win);
	MPI_Win_unlock(0, win);
	CHECK(seen[500] == (long)ADDS * ranks);
	CHECK(seen[501] == ACCUMULATES);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 0, 1, 1000, 8192, 8193, 65536, 3 << 20 };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	next = (rank + 1) % ranks;
	before = (rank + ranks - 1) % ranks;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		around(sizes[i]);
	many_at_once();
	collectives();
	if (argc < 2)
		one_sided();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks: all right\n", ranks);
	MPI_Finalize();
	return 0;
}
