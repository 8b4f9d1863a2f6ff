/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subcommands of `rocelink`: argv[0] is the subcommand's own name, the returned value is the
 * exit status. A subcommand that is not linked in is NULL, and neither offered nor listed.
 */
#ifndef ROCELINK_TOOLS_COMMANDS_H
#define ROCELINK_TOOLS_COMMANDS_H

enum exit_status {
	EXIT_OK = 0,
	EXIT_FAILED = 1, /* the command understood, and could not do it */
	EXIT_USAGE = 2,	 /* unknown option, wrong value */
};

int command_run(int argc, char **argv);
int command_counters(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_pingpong(int argc, char **argv);
int command_decode(int argc, char **argv);
int command_doctor(int argc, char **argv);

#endif
