/*
 * Literals in arguments of tool calls, as Python and Gemma write them, turned into JSON.
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_TOOL_LITERAL_H
#define TRM_LAUNCHER_SERVE_FORMATS_TOOL_LITERAL_H

#include "launcher/serve/formats/tool_format.h"

/* Reads a string ('...', "...", or between Gemma's marks), number, constant, list or dictionary and writes it as a
 * value (`key` NULL) or member. False if it is none of them, or the text is too short to tell; the writer may then hold
 * a part of it. */
bool tool_literal_write(tool_reader *r, const char *key, json_text *json);

#endif
