/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one engine of the process: opened with the first context, closed with the last; what a fork
 * and an exit do to it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/engine_internal.h"

#define OUTBOX_BYTES (512u << 10)

uint64_t engine_random(void *arg)
{
	uint64_t v = 0;

	(void)arg;
	if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		v = engine_now_ns() * UINT64_C(0x9e3779b97f4a7c15);
	return v;
}

/* Whatever the log level: only this tells which memory it was. */
static void memory_gone(const struct mr *mr, const void *address)
{
	fprintf(stderr,
		"rocelink: at %p, in the memory region of %llu bytes at %p (key 0x%x), nothing is "
		"mapped any more, or it was protected: the work request ends with an error. "
		"Deregister a region before its memory is unmapped.\n",
		address, (unsigned long long)mr->length, (void *)mr->host, mr->key);
}

static void engine_free(struct engine *e)
{
	engine_relay_close(e);
	qp_table_destroy(&e->qps, e->port);
	timers_destroy(&e->timers);
	mem_destroy(&e->mem);
	engine_fault_close(e);
	outbox_destroy(&e->outbox);
	outbox_destroy(&e->nowhere);
	port_close(e->port);
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->observers_lock);
	free(e);
}

static int engine_new(struct engine **out, char *error, size_t error_len)
{
	const struct settings *settings = settings_get();
	struct port_config config = {
		.callbacks = engine_port_callbacks,
		.udp_port = ROCE_UDP_PORT,
	};
	struct engine *e;
	int ret;

	if (!settings) {
		snprintf(error, error_len, "a ROCELINK_* setting is wrong");
		return -EINVAL;
	}
	if (settings->path == PATH_SHM && settings->pcap) {
		snprintf(error, error_len,
			 "path shm has no packets to capture: use path auto or udp with pcap");
		return -EINVAL;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->observers_lock, NULL);
	e->receive_budget = RECEIVE_BUDGET;
	config.arg = e;
	config.pcap = settings->pcap;
	/* Packets that are to be seen, or lost, are real ones unless asked otherwise. */
	config.shm = settings->path == PATH_SHM ||
		     (settings->path == PATH_AUTO && !settings->pcap && !settings->fault.active);
	ret = port_open(&e->port, &config, error, error_len);
	if (ret) {
		free(e);
		return ret;
	}
	ret = outbox_init(&e->outbox, OUTBOX_BYTES);
	if (!ret)
		ret = outbox_init(&e->nowhere, OUTBOX_BYTES);
	e->nowhere.no_icrc = true;
	if (!ret)
		ret = mem_init(&e->mem, engine_random, NULL);
	e->mem.on_gone = memory_gone;
	if (!ret && settings->fault.active)
		ret = engine_fault_open(e, &settings->fault);
	if (!ret)
		ret = engine_thread_start(e);
	if (ret) {
		snprintf(error, error_len, "starting the adapter: %s", strerror(-ret));
		engine_free(e);
		return ret;
	}
	*out = e;
	return 0;
}

/* The one engine of the process. */
static pthread_mutex_t instance_lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *instance;
static unsigned instance_users;

static void before_fork(void)
{
	pthread_mutex_lock(&instance_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&instance_lock);
}

/*
 * Sockets, numbers and the thread are the parent's; the contexts that the child inherited are dead
 * (the device sees to that), and one opened from now on gets an engine of its own. Descriptors are
 * closed at once: else packets would go to the child's copies, and blocks outlive the parent.
 */
static void after_fork_in_child(void)
{
	if (instance) {
		port_abandon(instance->port);
		engine_thread_abandon(instance);
	}
	instance = NULL;
	instance_users = 0;
	pthread_mutex_init(&instance_lock, NULL);
}

/* The program exits without closing: what is owed to its peers leaves. */
static void __attribute__((destructor)) leave(void)
{
	struct engine *e = instance;

	if (!e || pthread_mutex_trylock(&e->lock))
		return;
	e->deferred = false;
	if (!e->blocked)
		engine_transmit(e);
	engine_fault_close(e);
	pthread_mutex_unlock(&e->lock);
}

int engine_get(struct engine **e, char *error, size_t error_len)
{
	static bool hooked;
	int ret = 0;

	pthread_mutex_lock(&instance_lock);
	if (!hooked)
		hooked =
			pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
	if (!instance)
		ret = engine_new(&instance, error, error_len);
	if (!ret) {
		instance_users++;
		*e = instance;
	}
	pthread_mutex_unlock(&instance_lock);
	return ret;
}

void engine_put(struct engine *e)
{
	pthread_mutex_lock(&instance_lock);
	if (--instance_users == 0) {
		instance = NULL;
		engine_thread_stop(e);
		engine_free(e);
	}
	pthread_mutex_unlock(&instance_lock);
}
